"""A payload is read and hashed as a whole, and every mistake in `payload.yml` is named with its line."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from boardbench.errors import ExitCode, InputError
from boardbench.payload import PayloadFile, load_payload

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


BUILT = """\
version: 1
name: demo
summary: shows how it is done
boards: {kinds: [host]}
files:
  - {source: b.conf, path: b.conf}
  - {built: fast, path: fast}
units:
  - {name: demo.service, source: demo.service, fill: true}
settings: {port: 80, limit: 1 G}
build:
  source: {package: {name: demo, version: 1.0.0, sha256: "%s", inside: src}, commit: abcdef0}
  variants: {fast: {}}
  targets: [demo]
  cmake: {A: "1"}
  places: [{on: controller, arch: x86_64}]
""" % ("0" * 64)  # fmt: skip


@pytest.fixture
def built(demo: Path) -> Path:
    (demo / "payload.yml").write_text(BUILT)
    (demo / "demo.service").write_text("[Service]\nExecStart=/x --port @port@ ${HOME} @limit@\n")
    return demo


def test_what_a_build_makes_is_part_of_the_payload(built: Path) -> None:
    lacking = load_payload(built)
    assert [(part.built, part.path) for part in lacking.built] == [("fast", "fast")]
    file = PayloadFile(built / "b.conf", "fast/demo", "0755", 3, "a" * 64)
    whole = lacking.with_built([file])
    assert not whole.built
    assert [found.path for found in whole.files] == ["b.conf", "fast/demo"]
    assert whole.version_sha256 != lacking.version_sha256
    assert whole.blobs()["a" * 64] == built / "b.conf"


def test_settings_are_put_into_a_unit_that_is_filled(built: Path) -> None:
    payload = load_payload(built)
    unit = payload.units[0]
    content = b"[Service]\nExecStart=/x --port 80 ${HOME} 1 G\n"
    assert (unit.content, unit.sha256) == (content, hashlib.sha256(content).hexdigest())
    assert payload.blobs()[unit.sha256] == content
    other = payload.with_settings({"port": 81})
    assert other.units[0].content == content.replace(b"80", b"81")
    assert other.settings == {"port": 81, "limit": "1 G"}
    assert other.version_sha256 != payload.version_sha256


@pytest.mark.parametrize("value", ["1\nExecStart=/bin/evil", "%h", "$(x)", '"', "a;b", "\\"])
def test_a_setting_that_would_be_more_than_a_word_of_its_unit_is_refused(built: Path, value: str) -> None:
    with pytest.raises(InputError, match="cannot stand in a unit"):
        load_payload(built).with_settings({"port": value})


def test_a_unit_that_names_an_unknown_setting_is_refused(built: Path) -> None:
    (built / "demo.service").write_text("[Service]\nExecStart=/x @prot@\n")
    with pytest.raises(InputError, match="'@prot@' is no setting; did you mean 'port'"):
        load_payload(built)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("built: fast,", "built: fats,", "payload.yml:7: no build makes 'fats'; did you mean 'fast'?"),
        ("{built: fast, ", "{", "payload.yml:7: a file has either 'source' or 'built'"),
        ("built: fast,", "built: fast, source: b.conf,", "a file has either 'source' or 'built'"),
        ("  targets: [demo]\n", "", "'build' has no 'targets'"),
        ("  variants: {fast: {}}\n", "", "a build has either 'variants' or a 'model'"),
        ("arch: x86_64", "arch: x86", "did you mean 'x86_64'?"),
        ("sha256: \"0", "sha256: \"g", "which is not a SHA-256 in 64 hexadecimal digits"),
        ("on: controller", "on: contoller", "did you mean 'controller'?"),
    ],
)  # fmt: skip
def test_a_bad_build_is_told_in_one_line(built: Path, old: str, new: str, says: str) -> None:
    (built / "payload.yml").write_text(BUILT.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_payload(built)
    assert says in str(caught.value)


def test_the_payloads_of_the_project_can_be_read() -> None:
    folder = Path(__file__).resolve().parents[2] / "payloads"
    names = [path.parent.name for path in folder.glob("*/payload.yml")]
    assert {load_payload(folder / name).name for name in names} == set(names) >= {"llama-expert-cache", "burn"}
