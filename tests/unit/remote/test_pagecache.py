"""Cold is said only when it is proved. The host's own page cache is never dropped here: /proc is a folder."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boardbench.remote import pagecache
from boardbench.remote.failures import Failure
from boardbench.remote.places import Places

from .fakes import FakeCall

MEMINFO = "MemTotal:  1000 kB\nMemFree:   400 kB\nCached:   300 kB\nHugePages_Total: 7\n"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    (tmp_path / "proc/sys/vm/drop_caches").write_text("0\n")
    (tmp_path / "proc/meminfo").write_text(MEMINFO)
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(pagecache, "WAIT_S", 0.2)
    return Places(str(tmp_path))


@pytest.fixture
def model() -> Iterator[Path]:
    # /tmp may be a file system in memory, whose pages never leave; /var/tmp is to survive reboots, so it is a disk.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="boardbench-pagecache-") as folder:
        yield _written(Path(folder) / "model.gguf")


def _written(path: Path) -> Path:
    path.write_bytes(os.urandom(1 << 20))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    path.read_bytes()
    return path


def drop(places: Places, *files: Path) -> dict[str, Any]:
    return pagecache.drop_cache({"files": [str(path) for path in files]}, FakeCall(places))  # type: ignore[arg-type]


def in_page_cache(path: Path) -> bool:
    """Memory file systems hold their files in the page cache for ever: there nothing can get cold."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    gone = pagecache.resident_bytes(str(path)) == 0
    path.read_bytes()
    return gone


def test_the_kernel_gets_a_three_after_a_sync(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    order = Path(places.proc) / "sys/vm/drop_caches"
    seen: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: seen.append(order.read_text()))
    result = drop(places)
    assert seen == ["0\n"]
    assert order.read_text() == "3\n"
    assert result["state"] == "cold"
    assert "no files were named" in result["why"]
    assert result["meminfo_before"]["MemFree"] == 400 * 1024
    assert "HugePages_Total" not in result["meminfo_before"]


def test_residency_is_measured_without_bringing_the_file_in(model: Path) -> None:
    assert pagecache.resident_bytes(str(model)) == 1 << 20
    if not in_page_cache(model):
        pytest.fail("the tests' temporary folder is a memory file system: use --basetemp on a disk")
    fd = os.open(model, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    assert pagecache.resident_bytes(str(model)) == 0
    assert pagecache.resident_bytes(str(model)) == 0


def test_an_empty_file_has_nothing_resident(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert pagecache.resident_bytes(str(tmp_path / "empty")) == 0


def test_a_file_that_left_memory_is_cold(places: Places, model: Path) -> None:
    result = drop(places, model)
    (entry,) = result["files"]
    assert entry["resident_bytes_before"] == 1 << 20
    assert (result["state"], result["why"]) == ("cold", ""), entry
    assert entry["resident_bytes_after"] == 0


def test_a_file_that_a_process_has_mapped_stays_and_is_warm(places: Places, model: Path) -> None:
    # This process shows itself to the board, under another pid.
    folder = Path(places.proc) / "1234"
    folder.mkdir()
    (folder / "stat").write_text("1234 (server) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n")
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) >= 0
        (folder / "maps").write_bytes(Path("/proc/self/maps").read_bytes())
        result = drop(places, model)
    assert result["state"] == "warm"
    assert result["files"][0]["mapped_by"] == [1234]
    assert "mapped by process 1234" in result["why"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the point is that even root may not write")
def test_a_read_only_proc_is_warm_and_says_so(places: Places, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if str(path).endswith("drop_caches"):
            raise OSError(30, "Read-only file system", path)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", read_only)
    result = drop(places, model)
    assert result["state"] == "warm"
    assert "Read-only file system (EROFS)" in result["why"]


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("path", ["model.gguf", "/no/such/file", 3])
def test_a_file_that_is_not_there_is_bad_input(places: Places, path: object) -> None:
    with pytest.raises(Failure) as error:
        pagecache.drop_cache({"files": [path]}, FakeCall(places))  # type: ignore[arg-type]
    assert error.value.fault == "bad-input"
