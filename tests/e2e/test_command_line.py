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


def test_a_secret_of_the_inventory_gets_into_no_message(bench: Bench, tmp_path: Path) -> None:
    value = "Tr0ub4" + "dor-77"
    path = tmp_path / "lab.yml"
    path.write_text(GOOD_INVENTORY.replace("version: 1", f"version: 1\nvars: {{wifi_psk: {value}}}"), encoding="utf-8")
    done = bench.inv("plan", "--matrix", "thermal", "--limit", value, "-i", str(path), "--json")
    assert done.code == 2
    assert value not in done.out + done.err
    assert "no board or group '***'" in done.err
    (tmp_path / "workload.log").write_text(f"joined with {value}\n", encoding="utf-8")
    found = bench.inv("audit", str(tmp_path / "workload.log"), "-i", str(path))
    assert (found.code, value in found.out) == (1, False)
    assert "workload.log:1: the secret of inventory lab.yml" in found.out


def test_a_plan_says_everything_that_it_will_do_and_cost(bench: Bench) -> None:
    done = bench.inv("plan", "--matrix", "capacity-ladder", "--set", "king_mhz=2208,600")
    assert done.code == 0, done.err
    for words in (
        "restricted to king_mhz=2208,600",
        "active-king600",
        "guard of king, queen, jack",
        "gates: ",
        "bytes to push",
    ):
        assert words in done.out
    assert "about 0:" in done.out


def test_globs_of_cells_that_name_nothing_are_told(bench: Bench) -> None:
    for glob in ("zz*", ","):
        done = bench.inv("bench", "--matrix", "thermal", "--list-cells", "--cells", glob)
        assert done.code == 2, done.out
        assert one_line(done.err)
        assert "--list-cells shows all" in done.err
