"""Source from a tarball, a folder and a git checkout: the same bytes have the same id, and nothing leads out."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from boardbench.builds import source
from boardbench.builds.recipe import Pinned
from boardbench.builds.voice import Voice
from boardbench.errors import InputError, RigError
from boardbench.payload import hash_file

FILES = {"CMakeLists.txt": "project(x)\n", "src/a.c": "int a;\n", "ggml/CMakeLists.txt": "# inner\n"}


def write(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def tarball(path: Path, files: Mapping[str, str], prefix: str = "") -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(prefix + name)
            info.size, info.mode = len(text), 0o755 if name.endswith(".sh") else 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def unpacked(found: source.Source, target: Path) -> dict[str, str]:
    target.mkdir()
    found.unpack(target)
    return {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}


@pytest.mark.parametrize("prefix", ["", "./", "llama-1.0/", "pkg-0.3/vendor/x/"])
def test_a_tarball_is_unpacked_from_wherever_its_source_is(tmp_path: Path, prefix: str) -> None:
    path = tarball(tmp_path / "a.tar.gz", {**FILES, "run.sh": "#!/bin/sh\n", ".git/HEAD": "x"}, prefix)
    found = source.named(path, "vendor/x")
    assert unpacked(found, tmp_path / "out") == {**FILES, "run.sh": "#!/bin/sh\n"}
    assert os.access(tmp_path / "out/run.sh", os.X_OK)
    assert not os.access(tmp_path / "out/src/a.c", os.X_OK)


def test_the_named_folder_of_a_package_wins_over_its_own_top(tmp_path: Path) -> None:
    files = {"CMakeLists.txt": "outer", **{f"vendor/x/{name}": text for name, text in FILES.items()}}
    path = tarball(tmp_path / "a.tar.gz", files, "pkg-0.3/")
    assert unpacked(source.named(path, "vendor/x"), tmp_path / "out") == FILES


@pytest.mark.parametrize("name", ["../evil", "src/../../evil"])
def test_a_member_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    path = tarball(tmp_path / "a.tar.gz", {**FILES, name: "x"}, "top/")
    with pytest.raises(InputError, match="leads out of it"):
        unpacked(source.named(path, "x"), tmp_path / "out")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("target", ["/etc", "../../elsewhere"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        mark = tarfile.TarInfo("top/CMakeLists.txt")
        tar.addfile(mark, io.BytesIO())
        link = tarfile.TarInfo("top/link")
        link.type, link.linkname = tarfile.SYMTYPE, target
        tar.addfile(link)
    with pytest.raises(InputError, match="link that leads out"):
        unpacked(source.named(path, "x"), tmp_path / "out")


@pytest.mark.parametrize("cut", [200, 2000])
def test_a_cut_tarball_is_one_sentence(tmp_path: Path, cut: int) -> None:
    path = tarball(tmp_path / "a.tar.gz", {**FILES, "big": os.urandom(4000).hex()}, "top/")
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(InputError, match="the archive cannot be unpacked"):
        unpacked(source.named(path, "x"), tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "says"),
    [("nothing", "does not exist"), ("file", "is not a tarball"), ("empty", "no CMakeLists.txt in it")],
)
def test_what_is_no_source_is_one_sentence(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=says):
        source.named(tmp_path / name, "x")


def test_an_archive_without_the_mark_is_one_sentence(tmp_path: Path) -> None:
    path = tarball(tmp_path / "a.tar.gz", {"README": "x"})
    with pytest.raises(InputError, match=r"no CMakeLists\.txt in it"):
        unpacked(source.named(path, "x"), tmp_path / "out")


def test_the_id_of_a_folder_follows_its_bytes_only(tmp_path: Path) -> None:
    one = source.named(write(tmp_path / "one"), "x")
    other = source.named(write(tmp_path / "other"), "x")
    write(tmp_path / "other/build", {"CMakeCache.txt": "x"})
    os.utime(tmp_path / "other/src/a.c", (0, 0))
    assert source.named(tmp_path / "other", "x").id == other.id == one.id
    (tmp_path / "other/src/a.c").chmod(0o755)
    assert source.named(tmp_path / "other", "x").id != one.id
    (tmp_path / "one/src/a.c").write_text("int b;\n")
    assert source.named(tmp_path / "one", "x").id != one.id
    assert unpacked(other, tmp_path / "out") == FILES


def git(folder: Path, *words: str) -> None:
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": "/dev/null"}
    identity |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, env={**os.environ, **identity})


def test_of_a_checkout_everything_counts_that_git_does_not_ignore(tmp_path: Path) -> None:
    folder = write(tmp_path / "checkout", {**FILES, ".gitignore": "out/\n"})
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    committed = source.named(folder, "x")
    assert len(committed.commit) == 40
    write(folder, {"out/object.o": "x"})
    assert source.named(folder, "x").id == committed.id
    write(folder, {"src/new.c": "int n;\n"})
    changed = source.named(folder, "x")
    assert changed.id != committed.id
    assert set(unpacked(changed, tmp_path / "out")) == {*FILES, ".gitignore", "src/new.c"}


PIN = Pinned("some-package", "1.0", "0" * 64, "vendor/x", "abcdef0")


def fake_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Puts a program in the place of Python, so that what pip says can be chosen."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'ERROR: No matching distribution found' >&2; exit 1", "No matching distribution found"),
        ("echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES' >&2; exit 1", "does not have the pinned SHA-256"),
        ("exit 0", "does not have the pinned SHA-256"),
        ("exit 1", "no message"),
    ],
)
def test_what_pip_cannot_do_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, says: str
) -> None:
    fake_pip(monkeypatch, tmp_path, script)
    found = source.pinned(PIN, tmp_path / "cache", Voice())
    with pytest.raises(RigError, match=says):
        unpacked(found, tmp_path / "out")
    assert list((tmp_path / "cache/sources").iterdir()) == []


def test_a_pinned_source_is_fetched_once_and_only_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = tarball(tmp_path / "made.tar.gz", FILES, "some-package-1.0/vendor/x/")
    pin = Pinned("some-package", "1.0", hash_file(archive)[1], "vendor/x", "abcdef0")
    copies = f'echo x >> {tmp_path}/count; for last; do :; done; cp {archive} "$last/some_package-1.0.tar.gz"'
    fake_pip(monkeypatch, tmp_path, copies)
    found = source.pinned(pin, tmp_path / "cache", Voice())
    assert not (tmp_path / "count").exists()
    assert unpacked(found, tmp_path / "out") == FILES
    assert unpacked(found, tmp_path / "again") == FILES
    assert (tmp_path / "count").read_text() == "x\n"
