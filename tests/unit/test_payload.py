"""A payload is read and hashed as a whole, and every mistake in `payload.yml` is named with its line."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from boardbench.errors import ExitCode, InputError
from boardbench.payload import load_payload

BAD = Path(__file__).parent / "cases/bad/payload"
EXPECTED = json.loads((BAD / "expected.json").read_text())

DEMO = """\
version: 1
name: demo
summary: shows how it is done
boards: {kinds: [host, nanopi-r76s]}
files:
  - {source: src/a.py, path: bin/a.py, mode: 0755}
  - {source: b.conf, path: b.conf}
units:
  - {name: demo.service, source: demo.service, enabled: true}
health: [python3, /opt/boardbench/payloads/demo/bin/a.py, --check]
conflicts: [other.service]
harness:
  scripts: [/opt/boardbench/payloads/demo/bin/a.py]
  units: [demo.service]
run: {argv: [python3, /opt/boardbench/payloads/demo/bin/a.py]}
"""


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    folder = tmp_path / "demo"
    (folder / "src").mkdir(parents=True)
    (folder / "payload.yml").write_text(DEMO)
    (folder / "src/a.py").write_text("print('a')\n")
    (folder / "b.conf").write_text("x = 1\n")
    (folder / "demo.service").write_text("[Service]\nExecStart=/bin/true\n")
    return folder


def test_files_and_units_carry_size_and_hash(demo: Path) -> None:
    payload = load_payload(demo)
    a = hashlib.sha256(b"print('a')\n").hexdigest()
    script = payload.files[0]
    assert (script.path, script.mode, script.size, script.sha256) == ("bin/a.py", "0755", 11, a)
    assert payload.files[1].mode == "0644"
    assert payload.blobs()[a] == demo / "src/a.py"
    assert len(payload.blobs()) == 3


def test_arguments_of_the_resource_are_those_of_the_wire(demo: Path) -> None:
    args = load_payload(demo).as_args()
    assert set(args) == {
        "name", "version_sha256", "root", "files", "units", "settings", "health", "conflicts", "harness",
    }  # fmt: skip
    assert args["root"] == "/opt/boardbench/payloads/demo"
    assert args["settings"] is None
    assert args["harness"] == {
        "executables": [],
        "scripts": ["/opt/boardbench/payloads/demo/bin/a.py"],
        "units": ["demo.service"],
    }
    json.dumps(args, allow_nan=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "src/a.py").write_text("print('b')\n"),
        lambda folder: (folder / "demo.service").write_text("[Service]\n"),
        lambda folder: (folder / "payload.yml").write_text(DEMO.replace("0755", "0700")),
        lambda folder: (folder / "payload.yml").write_text(DEMO.replace("enabled: true", "active: true")),
    ],
    ids=["file", "unit file", "mode", "unit state"],
)
def test_the_version_changes_with_whatever_a_board_gets(demo: Path, change: object) -> None:
    before = load_payload(demo).version_sha256
    assert callable(change)
    change(demo)
    assert load_payload(demo).version_sha256 != before


def test_the_version_does_not_change_with_what_no_board_gets(demo: Path, tmp_path: Path) -> None:
    before = load_payload(demo).version_sha256
    (demo / "README.md").write_text("words\n")
    (demo / "payload.yml").write_text("# a comment\n" + DEMO.replace("shows how", "tells how"))
    copied = shutil.copytree(demo, tmp_path / "elsewhere/demo")
    assert load_payload(copied).version_sha256 == before


def test_other_settings_make_another_version(demo: Path) -> None:
    payload = load_payload(demo)
    other = payload.with_settings({"threads": 4})
    assert other.as_args()["settings"] == {"threads": 4}
    assert other.version_sha256 != payload.version_sha256


def test_a_link_out_of_the_folder_is_refused(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("x")
    (demo / "b.conf").unlink()
    (demo / "b.conf").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match="leads out of the payload"):
        load_payload(demo)


def test_a_folder_without_payload_yml_is_no_payload(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_payload(tmp_path)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_bad_payload_is_told_in_one_line_with_file_and_line(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "a.py").write_text("pass\n")
    shutil.copy(BAD / f"{name}.yml", folder / "payload.yml")
    with pytest.raises(InputError) as caught:
        load_payload(folder)
    assert caught.value.exit_code == ExitCode.INPUT
    assert str(caught.value).startswith(f"{folder}/payload.yml:{EXPECTED[name]['line']}: ")
    assert EXPECTED[name]["says"] in str(caught.value)
