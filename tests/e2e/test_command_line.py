"""What a user types wrong gets one clear line and exit code 2; lists and help read like a manual."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Bench

GOOD_INVENTORY = """\
version: 1
groups:
  npu: {boards: [king, queen]}
boards:
  king: {kind: nanopi-r76s, access: {host: 127.0.0.1}}
  queen: {kind: nanopi-r76s, access: {host: 127.0.0.2}}
"""

BAD_INVENTORIES = {
    "wrong key": GOOD_INVENTORY.replace("access:", "acess:", 1),
    "wrong type": GOOD_INVENTORY.replace("version: 1", "version: one"),
    "duplicate board": GOOD_INVENTORY + "  king: {kind: nanopi-r76s, access: {host: 127.0.0.3}}\n",
    "unknown member": GOOD_INVENTORY.replace("[king, queen]", "[king, quen]"),
    "tab": GOOD_INVENTORY.replace("  king:", "\tking:"),
    "empty": "",
    "not YAML": "boards: [king\n",
    "alias bomb": "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nversion: *c\n",
}


def one_line(text: str) -> bool:
    return len(text.strip().splitlines()) == 1


@pytest.mark.parametrize("fault", BAD_INVENTORIES)
def test_a_bad_inventory_is_named_with_its_line(bench: Bench, tmp_path: Path, fault: str) -> None:
    path = tmp_path / "lab.yml"
    path.write_text(BAD_INVENTORIES[fault], encoding="utf-8")
    done = bench.inv("boards", "-i", str(path))
    assert done.code == 2, done.err
    assert one_line(done.err), done.err
    assert "lab.yml" in done.err
    assert "Traceback" not in done.err


def test_a_missing_file_a_folder_and_bytes_that_are_no_text_are_told_apart(bench: Bench, tmp_path: Path) -> None:
    noise = tmp_path / "noise.yml"
    noise.write_bytes(b"\xff\xfe\x00boards")
    for path in (tmp_path / "none.yml", tmp_path, noise):
        done = bench.inv("boards", "-i", str(path))
        assert done.code == 2, done.err
        assert one_line(done.err), done.err
        assert str(path) in done.err


def test_a_verb_that_is_nearly_right_is_suggested(bench: Bench) -> None:
    done = bench.inv("provison")
    assert done.code == 2
    assert "did you mean 'provision'?" in done.err


def test_an_option_that_is_nearly_right_is_suggested(bench: Bench) -> None:
    done = bench.inv("bench", "--matix", "thermal")
    assert done.code == 2
    assert "did you mean '--matrix'?" in done.err


def test_a_matrix_that_is_nearly_right_is_suggested(bench: Bench) -> None:
    done = bench.inv("bench", "--matrix", "thermol")
    assert done.code == 2
    assert "did you mean 'thermal'?" in done.err


def test_an_unknown_board_is_refused_before_anything_is_started(bench: Bench) -> None:
    done = bench.inv("provision", "--limit", "quen")
    assert done.code == 2
    assert "queen" in done.err
    assert bench.inv("virtual.status", "--json").document["boards"] == {}


def test_errors_are_also_a_json_document(bench: Bench) -> None:
    done = bench.inv("bench", "--matrix", "thermol", "--json")
    assert done.code == 2
    assert done.document["error"]["fault"] == "bad-input"


def test_the_list_names_every_verb_once_with_its_first_line(bench: Bench) -> None:
    done = bench.inv("--list")
    assert done.code == 0
    for name in ("demo", "provision", "bench", "collect", "validate", "report", "teardown", "boards", "boards.trust",
                 "status", "audit", "virtual.up", "virtual.down", "virtual.status", "virtual.fit", "test"):  # fmt: skip
        assert [line for line in done.out.splitlines() if line.startswith(f"  {name} ")], name
