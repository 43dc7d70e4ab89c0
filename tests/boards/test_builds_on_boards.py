"""Payloads with programs of their own: built for each board where the payload says, pushed by hash, and gone again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from boardbench.board import Door
from boardbench.builds import toolchain
from boardbench.builds.completing import Completer
from boardbench.builds.store import Store
from boardbench.builds.voice import Voice
from boardbench.errors import RigError, UnreachableError
from boardbench.inventory import Inventory
from boardbench.playbook import apply, load
from boardbench.playbook.recap import Outcome
from boardbench.virtual.fleet import Fleet

from .lab import Lab, recap_of
from .rig import ssh

LACKING = toolchain.missing(toolchain.controller_arch())
pytestmark = [
    pytest.mark.boards,
    pytest.mark.skipif(bool(LACKING), reason=f"not installed: {' '.join(LACKING)}"),
]
PLAYBOOK = """\
version: 1
name: programs
steps:
  - payload: {name: tiny, source: "${tiny_source}"}
    kinds: [%s]
"""
ROOT = "/opt/boardbench/payloads/tiny"


class Bench:
    """A lab, and a payload with its builds in a folder of their own."""

    def __init__(self, lab: Lab, folder: Path, tiny: ModuleType) -> None:
        self.lab = lab
        self.folder = folder
        self.source: Path = tiny.source(folder / "source")
        tiny.payload(folder / "payloads")
        self.sentences: list[str] = []
        self.steps: list[tuple[str, int, int]] = []

    def completer(self, inventory: Inventory, **options: Any) -> Completer:
        voice = Voice(self.sentences.append, lambda *step: self.steps.append(step))
        cache = self.folder / "cache"
        return Completer(lambda board: Door.open(board, inventory.known_hosts), voice, cache=cache, **options)

    def provision(self, kinds: str, *names: str, check: bool = False) -> Outcome:
        inventory = self.lab.inventory()
        path = self.folder / "programs.yml"
        text = PLAYBOOK % kinds
        path.write_text(text.replace("steps:", f"vars: {{tiny_source: {self.source}}}\nsteps:"))
        return apply.run(
            inventory,
            [inventory.boards[name] for name in names],
            load.load(path, inventory, payloads=self.folder / "payloads"),
            check=check,
            open_door=lambda board: Door.open(board, inventory.known_hosts),
            completer=self.completer(inventory, check=check),
        )

    def hashes(self, board: str) -> dict[str, str]:
        listed = ssh(self.lab.fleet, board, "sh", "-c", f"'cd {ROOT} && sha256sum */*'").out
        return {name: sha for sha, name in (line.split() for line in listed.splitlines())}

    def built(self) -> int:
        return len([path for path in (self.folder / "cache/builds").iterdir() if path.is_dir()])


@pytest.fixture
def bench(bwrap_fleet: Fleet, tmp_path: Path, tiny: ModuleType) -> Iterator[Bench]:
    made = Bench(Lab(bwrap_fleet, tmp_path), tmp_path, tiny)
    yield made
    made.lab.as_it_was().clean()


def test_a_program_is_built_once_on_the_controller_pushed_by_hash_and_runs(bench: Bench) -> None:
    outcome = bench.provision("jetson-orin-nano", "jetson")
    assert recap_of(outcome)["jetson"] == {"ok": 0, "changed": 1, "skipped": 0, "failed": 0, "unreachable": 0}
    for variant in ("stock", "patched"):
        assert ssh(bench.lab.fleet, "jetson", f"{ROOT}/{variant}/say").out.split()[0] == variant
    assert bench.built() == 2
    bench.steps.clear()
    again = bench.provision("jetson-orin-nano", "jetson")
    assert recap_of(again)["jetson"]["changed"] == 0
    assert bench.steps == []


def test_check_builds_on_the_controller_and_touches_no_board(bench: Bench) -> None:
    outcome = bench.provision("jetson-orin-nano", "jetson", check=True)
    assert recap_of(outcome)["jetson"]["changed"] == 1
    assert ssh(bench.lab.fleet, "jetson", "ls", ROOT).code != 0


def test_a_board_builds_for_itself_and_its_twin_gets_the_same_bytes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough to be seen at it.
    cmake = bench.source / "CMakeLists.txt"
    cmake.write_text(cmake.read_text() + "add_custom_command(TARGET tiny PRE_LINK COMMAND sleep 3)\n")
    monkeypatch.setattr("boardbench.builds.on_board.POLL_S", 0.1)
    outcome = bench.provision("nanopi-r76s", "king", "queen")
    counts = recap_of(outcome)
    assert (counts["king"]["failed"], counts["queen"]["failed"]) == (0, 0), bench.sentences
    assert any("building tiny stock for x86_64 on king" in sentence for sentence in bench.sentences)
    assert not any("on queen" in sentence for sentence in bench.sentences)
    assert bench.hashes("king") == bench.hashes("queen")
    assert ssh(bench.lab.fleet, "queen", f"{ROOT}/patched/say").out.split()[0] == "patched"
    assert all(title.endswith(" on king") and done <= total for title, done, total in bench.steps)
    assert {title.split()[1] for title, _, _ in bench.steps} == {"stock", "patched"}
    left = ssh(bench.lab.fleet, "king", "ls", "/opt/boardbench/payloads", "/var/lib/boardbench/runs").out
    assert "build-" not in left
    store = Store(bench.folder / "cache")
    facts = [store.find(path.name) for path in store.folder.iterdir() if path.is_dir()]
    assert all(found is not None and "g++" in found.facts["compilers"][0] for found in facts)
    assert recap_of(bench.provision("nanopi-r76s", "king", "queen"))["king"]["changed"] == 0


def test_a_build_that_fails_on_a_board_is_one_sentence_with_its_log_here(bench: Bench) -> None:
    (bench.source / "src/tiny.cpp").write_text("int tiny( {\n")
    with pytest.raises(RigError, match=r"building tiny stock for x86_64 on king failed: .*error:") as caught:
        bench.provision("nanopi-r76s", "king")
    assert "tiny.cpp" in Path(caught.value.where).read_text()
    left = ssh(bench.lab.fleet, "king", "ls", "/opt/boardbench/payloads", "/var/lib/boardbench/runs").out
    assert "build-" not in left


def test_a_build_whose_link_was_lost_goes_on_and_is_fetched_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: object) -> None:
        raise UnreachableError("the link was lost", where="king")

    with monkeypatch.context() as cut:
        cut.setattr("boardbench.builds.on_board._Work.wait", lost)
        with pytest.raises(UnreachableError):
            bench.provision("nanopi-r76s", "king")
    bench.sentences.clear()
    outcome = bench.provision("nanopi-r76s", "king")
    assert recap_of(outcome)["king"]["failed"] == 0
    begun = [sentence for sentence in bench.sentences if "on king" in sentence]
    assert "tiny stock for x86_64 was begun on king before: going on with that" in begun
    assert not any("building tiny stock" in sentence for sentence in begun)
    assert ssh(bench.lab.fleet, "king", f"{ROOT}/stock/say").out.split()[0] == "stock"


def test_a_board_without_what_its_build_needs_says_so(bench: Bench) -> None:
    yml = bench.folder / "payloads/tiny/payload.yml"
    yml.write_text(yml.read_text().replace("kinds: [nanopi-r76s]}", "kinds: [nanopi-r76s], needs: [/usr/no/nvcc]}"))
    with pytest.raises(RigError, match="this board has no /usr/no/nvcc"):
        bench.provision("nanopi-r76s", "king")


def test_check_does_not_let_a_board_build(bench: Bench) -> None:
    with pytest.raises(RigError, match="king: tiny stock for x86_64 has not been built yet, and --check"):
        bench.provision("nanopi-r76s", "king", check=True)


def test_a_board_that_is_away_costs_only_itself(bench: Bench) -> None:
    bench.lab.with_access("king", port=1)
    outcome = bench.provision("jetson-orin-nano, nanopi-r76s", "jetson", "king")
    counts = recap_of(outcome)
    assert (counts["jetson"]["changed"], counts["king"]["unreachable"]) == (1, 1)


def test_restoring_leaves_nothing_of_a_built_payload(bench: Bench) -> None:
    bench.provision("jetson-orin-nano", "jetson")
    bench.lab.clean()
    assert ssh(bench.lab.fleet, "jetson", "ls", "/opt/boardbench/payloads").out == ""


def test_the_bytes_on_the_board_are_those_of_the_store(bench: Bench) -> None:
    bench.provision("jetson-orin-nano", "jetson")
    store = Store(bench.folder / "cache")
    found = [store.find(path.name) for path in store.folder.iterdir() if path.is_dir()]
    here = {hashlib.sha256(file.path.read_bytes()).hexdigest() for one in found if one for file in one.files}
    assert set(bench.hashes("jetson").values()) == here
