"""Every mistake in a playbook is one clear line with file and line number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boardbench.errors import ExitCode, InputError
from boardbench.playbook.compile import compile_playbook
from boardbench.playbook.load import RESOURCES, UNDOING, load

from . import rig

BAD = Path(__file__).parents[1] / "cases/bad/playbook"
EXPECTED = json.loads((BAD / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_bad_playbook_is_told_in_one_line_with_file_and_line(name: str, tmp_path: Path) -> None:
    path = BAD / f"{name}.yml"
    with pytest.raises(InputError) as caught:
        load(path, rig.inventory(tmp_path), payloads=rig.payloads(tmp_path))
    line, says = EXPECTED[name]["line"], EXPECTED[name]["says"]
    assert caught.value.exit_code == ExitCode.INPUT
    assert str(caught.value).startswith(f"{path}:{line}: {says}" if line else f"{path}: {says}")
    assert "\n" not in str(caught.value)


def test_every_bad_file_has_an_expectation() -> None:
    assert {path.stem for path in BAD.glob("*.yml")} == set(EXPECTED)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.unlink(missing_ok=True), "no such file"),
        (lambda path: path.mkdir(), "this is a folder, not a file"),
        (lambda path: path.write_bytes(b"version: 1\nname: \xe9\n"), "not UTF-8 text: byte 0xe9"),
        (lambda path: path.write_bytes(b"\x00\x01\x02"), "a character that YAML does not allow"),
    ],
    ids=["missing", "folder", "latin-1", "binary"],
)
def test_what_is_no_playbook_file_at_all_is_told(make: object, says: str, tmp_path: Path) -> None:
    assert callable(make)
    path = tmp_path / "play.yml"
    make(path)
    with pytest.raises(InputError, match=says) as caught:
        load(path, rig.inventory(tmp_path), payloads=rig.payloads(tmp_path))
    assert str(caught.value).startswith(str(path))


def test_a_playbook_tells_its_tags(tmp_path: Path) -> None:
    steps = "  - directory: {path: /a}\n    tags: [b, a]\n  - directory: {path: /b}\n    tags: [c]\n"
    assert rig.playbook(tmp_path, f"version: 1\nname: x\nsteps:\n{steps}").tags == ("a", "b", "c")


_TEXT = st.sampled_from(
    ["/opt/x", "x", "${board}", "${nope}", "$${x}", "${", "a.service", "burn", "present", "absent", "\x00", ""]
)
_VALUE = st.one_of(_TEXT, st.integers(-1, 3), st.booleans(), st.none(), st.lists(_TEXT, max_size=2))
_ARGS = st.dictionaries(
    st.sampled_from(
        ["path", "name", "names", "content", "source", "state", "value", "argv", "unless", "scope", "settings"]
    ),
    _VALUE,
    max_size=4,
)
_STEP = st.dictionaries(st.sampled_from([*RESOURCES, *UNDOING]), _ARGS, min_size=1, max_size=1).flatmap(
    lambda resource: st.fixed_dictionaries(
        {key: st.just(value) for key, value in resource.items()},
        optional={
            "tags": st.just(["a"]),
            "boards": st.lists(st.sampled_from(["king", "k*", "x*", "all", "npu"]), min_size=1, max_size=2),
            "when": st.dictionaries(st.sampled_from(["arch", "virtual.kind", "x"]), _VALUE, max_size=1),
        },
    )
)


@given(st.lists(_STEP, min_size=1, max_size=3))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_playbook_says_it_compiles_or_is_an_input_error(tmp_path: Path, steps: list[object]) -> None:
    text = json.dumps({"version": 1, "name": "any", "steps": steps})
    inventory = rig.inventory(tmp_path)
    said = None
    try:
        programs = compile_playbook(rig.playbook(tmp_path, text, inventory), inventory.select(None))
    except InputError as error:
        said = str(error)
    assert said.startswith(f"{tmp_path}/play.yml:1: ") if said is not None else len(programs) == 3
