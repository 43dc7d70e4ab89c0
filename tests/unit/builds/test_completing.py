"""Boards get what is built for what they are; models are made once; what has been built before is known as such."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

import boardbench.moe
from boardbench.builds import models, toolchain, wheels
from boardbench.builds.completing import Completer
from boardbench.builds.voice import Voice
from boardbench.errors import InputError, RigError, UnreachableError
from boardbench.inventory import Access, Board, Cooling, Identity
from boardbench.payload import Payload, PayloadFile, hash_file, load_payload

from . import tiny

ARCH = toolchain.controller_arch()
LACKING = toolchain.missing(ARCH)
needs_compiler = pytest.mark.skipif(bool(LACKING), reason=f"not installed: {' '.join(LACKING)}")
MODEL = """\
version: 1
name: small
summary: for tests
boards: {kinds: [host]}
files: [{built: model, path: small.gguf}]
build: {model: {types: q8_0, n_embd: 64, n_ff: 64, n_layers: 1, n_experts: 2, n_used: 1, seed: %d}}
"""


class FactsDoor:
    """Answers `facts`, or cannot be reached."""

    def __init__(self, facts: Mapping[str, Any] | None) -> None:
        self._facts = facts

    def call(self, verb: str, _args: Mapping[str, object], **_: object) -> dict[str, object]:
        assert verb == "facts"
        if self._facts is None:
            raise UnreachableError("no answer", where="king")
        return {"facts": self._facts}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def board(name: str, kind: str = "host") -> Board:
    access = Access("127.0.0.1", 22, "pi", None, None, None)
    nothing = Identity(hostname=None, machine_id=None, serial=None)
    return Board(name, kind, access, (), frozenset(), Cooling("manual", {}), nothing, {}, "test")


def completer(folder: Path, facts: Mapping[str, Any] | None, **options: Any) -> Completer:
    def door(_: Board) -> Any:
        return FactsDoor(facts)

    return Completer(door, options.pop("voice", Voice()), cache=folder / "cache", **options)


def small(folder: Path, seed: int = 1) -> Payload:
    (folder / "small").mkdir(exist_ok=True)
    (folder / "small/payload.yml").write_text(MODEL % seed)
    return load_payload(folder / "small")


def test_a_board_that_cannot_be_asked_is_told_apart(tmp_path: Path) -> None:
    lost = completer(tmp_path, None).meet([board("king")])
    assert isinstance(lost["king"], UnreachableError)
    silent = completer(tmp_path, {"virtual": None}).meet([board("king")])
    assert "does not say what machine it is" in str(silent["king"])
    assert completer(tmp_path, {"arch": ARCH, "virtual": None}).meet([board("king")]) == {}


def test_a_model_is_made_once_and_follows_its_parameters(tmp_path: Path) -> None:
    sentences: list[str] = []
    made = completer(tmp_path, None, voice=Voice(sentences.append))
    (first,) = made.complete(small(tmp_path), board("king")).files
    (again,) = made.complete(small(tmp_path), board("queen")).files
    (other,) = made.complete(small(tmp_path, seed=2), board("king")).files
    assert first == again
    assert (first.path, first.mode) == ("small.gguf", "0644")
    assert other.sha256 != first.sha256
    assert len(sentences) == 2
    (elsewhere,) = completer(tmp_path / "elsewhere", None).complete(small(tmp_path), board("king")).files
    assert elsewhere.sha256 == first.sha256


def test_the_named_modules_are_all_that_make_a_model() -> None:
    folder = Path(boardbench.moe.__file__).parent
    imported = set()
    for name in models.MAKER:
        for node in ast.walk(ast.parse((folder / name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                imported.add(f"{node.module}.py")
    assert imported <= set(models.MAKER)


def test_sizes_that_do_not_fit_are_one_sentence(tmp_path: Path) -> None:
    payload = small(tmp_path)
    (tmp_path / "small/payload.yml").write_text((MODEL % 1).replace("n_embd: 64", "n_embd: 65"))
    payload = load_payload(tmp_path / "small")
    with pytest.raises(InputError, match="n_embd 65 is not made of heads"):
        completer(tmp_path, None).complete(payload, board("king"))
    assert not list((tmp_path / "cache/builds").glob("*.partial-*"))


@needs_compiler
def test_what_a_board_is_decides_what_it_gets(tmp_path: Path) -> None:
    tiny.wanted(tmp_path)
    payload, host = load_payload(tmp_path / "tiny"), board("server")
    made = completer(tmp_path, {"arch": ARCH, "virtual": None}, given=str(tmp_path / "source"))
    made.meet([host])
    assert not made.ready(payload, host)
    whole = made.complete(payload, host)
    assert made.ready(payload, host)
    assert not whole.built
    modes = {file.path: file.mode for file in whole.files}
    assert modes["stock/say"] == modes["patched/say"] == "0755"
    assert modes["stock/libtiny.so.1"] == "0644"
    strange = completer(tmp_path, {"arch": "riscv64", "virtual": None}, given=str(tmp_path / "source"))
    strange.meet([host])
    with pytest.raises(RigError, match="server: payload 'tiny' cannot be built for host on riscv64"):
        strange.complete(payload, host)


def test_a_payload_without_builds_is_given_back_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/a").write_text("a")
    (tmp_path / "plain/payload.yml").write_text(
        "version: 1\nname: plain\nsummary: x\nboards: {kinds: [host]}\nfiles: [{source: a, path: a}]\n"
    )
    payload = load_payload(tmp_path / "plain")
    assert completer(tmp_path, None).complete(payload, board("king")) is payload


def test_pinned_libraries_are_put_beside_what_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "small.py"
    library.write_text("x = 1\n")
    size, sha256 = hash_file(library)
    monkeypatch.setattr(wheels, "ensure", lambda *_: [PayloadFile(library, "small.py", "0644", size, sha256)])
    payload = replace(small(tmp_path), python=("small==1.0",))
    made = completer(tmp_path, {"arch": ARCH, "python": "3.12.3", "virtual": None})
    made.meet([board("king")])
    assert not made.ready(payload, board("king"))
    whole = made.complete(payload, board("king"))
    assert [file.path for file in whole.files] == ["small.gguf", "small.py"]
    assert not whole.lacks
    assert whole.as_args()["libraries"] == {"python": "3.12", "arch": ARCH, "wheels": ["small==1.0"]}


def test_libraries_for_another_python_are_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "ensure", lambda *_: [])
    versions = set()
    for python in ("3.11.2", "3.12.3"):
        made = completer(tmp_path, {"arch": ARCH, "python": python, "virtual": None})
        made.meet([board("king")])
        versions.add(made.complete(replace(small(tmp_path), python=("small==1.0",)), board("king")).version_sha256)
    assert len(versions) == 2
