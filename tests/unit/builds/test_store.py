"""A build that is there is whole; it is made once, also by several makers at once; a failed one leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from boardbench.builds.store import MANIFEST, UNUSED_DAYS, Built, Store, key_of
from boardbench.errors import InputError, RigError


def make(store: Store, key: str = "k", content: bytes = b"x", needs_bytes: int = 0) -> Built:
    return store.make(key, {"who": "test"}, needs_bytes, lambda: None, producing(content))


def producing(content: bytes) -> Callable[[Path], Mapping[str, object]]:
    def produce(work: Path) -> Mapping[str, object]:
        (work / "files").mkdir()
        (work / "files/program").write_bytes(content)
        (work / "files/program").chmod(0o755)
        (work / "files/data").write_bytes(b"")
        (work / "source").mkdir()
        return {"more": 1}

    return produce


def test_what_was_made_is_found_with_its_files_and_facts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = make(store)
    found = store.find("k")
    assert found == made
    assert [(file.name, file.executable, file.size) for file in made.files] == [
        ("data", False, 0),
        ("program", True, 1),
    ]
    assert (made.facts["who"], made.facts["more"]) == ("test", 1)
    assert sorted(path.name for path in (tmp_path / "builds").iterdir()) == ["k", "k.lock"]
    assert sorted(path.name for path in (tmp_path / "builds/k").iterdir()) == ["build.json", "files"]


def test_it_is_not_made_again(tmp_path: Path) -> None:
    first = make(Store(tmp_path), content=b"first")
    assert make(Store(tmp_path), content=b"second") == first


@pytest.mark.parametrize("damage", ["flipped", "gone", "no manifest"])
def test_a_damaged_build_is_made_anew(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    made = make(store, content=b"good")
    if damage == "flipped":
        (made.folder / "program").write_bytes(b"goOd")
    elif damage == "gone":
        (made.folder / "program").unlink()
    else:
        (made.folder.parent / "build.json").write_text("{")
    assert store.find("k") is None
    assert (make(store, content=b"good").folder / "program").read_bytes() == b"good"


def test_a_failed_build_leaves_nothing_that_looks_like_one(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def fails(work: Path) -> Mapping[str, object]:
        (work / "files").mkdir()
        raise InputError("no")

    with pytest.raises(InputError):
        store.make("k", {}, 0, lambda: None, fails)
    assert [path.name for path in (tmp_path / "builds").iterdir()] == ["k.lock"]


def test_what_a_killed_maker_left_is_cleared(tmp_path: Path) -> None:
    left = tmp_path / "builds" / "k.partial-dead" / "build"
    left.mkdir(parents=True)
    make(Store(tmp_path))
    assert not left.parent.exists()


def test_no_room_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RigError, match=r"a build needs .* MB and .* MB are free; make room"):
        make(Store(tmp_path), needs_bytes=1 << 60)


def test_a_full_disk_in_the_middle_is_one_sentence(tmp_path: Path) -> None:
    def full(work: Path) -> Mapping[str, object]:
        raise OSError(28, "No space left on device", str(work / "files"))

    with pytest.raises(RigError, match="a build cannot be stored: No space left on device"):
        Store(tmp_path).make("k", {}, 0, lambda: None, full)


def test_a_cache_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RigError, match="the folder of builds cannot be made"):
        make(Store(tmp_path / "file"))


MAKER = """
import sys, time
from pathlib import Path
from boardbench.builds.store import Store

def produce(work):
    with open(sys.argv[1] + "/count", "a") as file:
        file.write("x")
    time.sleep(0.5)
    (work / "files").mkdir()
    (work / "files/a").write_text("a")
    return {}

built = Store(Path(sys.argv[1])).make("k", {}, 0, lambda: print("waits", flush=True), produce)
print(built.folder.name)
"""


def test_two_makers_at_once_make_it_once(tmp_path: Path) -> None:
    makers = [
        subprocess.Popen([sys.executable, "-c", MAKER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [maker.communicate(timeout=60)[0] for maker in makers]
    assert [maker.returncode for maker in makers] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "x"
    assert all(text.endswith("files\n") for text in said)


def test_a_killed_maker_holds_nobody_up(tmp_path: Path) -> None:
    slow = MAKER.replace("time.sleep(0.5)", "time.sleep(600)")
    maker = subprocess.Popen([sys.executable, "-c", slow, str(tmp_path)])
    deadline = time.monotonic() + 30
    while not (tmp_path / "count").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    maker.kill()
    maker.wait()
    assert make(Store(tmp_path)).files


def test_a_build_that_nobody_asked_for_in_a_long_time_goes_when_another_is_made(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for key in ("old", "asked", "new"):
        make(store, key)
    long_ago = time.time() - (UNUSED_DAYS + 1) * 86_400
    for key in ("old", "asked"):
        os.utime(store.folder / key / MANIFEST, (long_ago, long_ago))
    assert store.find("asked") is not None
    make(store, "another")
    assert [key for key in ("old", "asked", "new", "another") if store.has(key)] == ["asked", "new", "another"]


def test_the_key_follows_every_input_and_nothing_else() -> None:
    inputs = {"source": "s", "patches": ["a", "b"], "cmake": {"A": "1", "B": "2"}}
    same = {"cmake": {"B": "2", "A": "1"}, "patches": ["a", "b"], "source": "s"}
    assert key_of(inputs) == key_of(same)
    others = [{**inputs, "source": "t"}, {**inputs, "patches": ["b", "a"]}, {**inputs, "cmake": {"A": "1"}}]
    assert len({key_of(inputs), *map(key_of, others)}) == 4
    assert json.dumps(key_of(inputs)).isascii()
