"""Playbook and board variables in, exactly these calls out: cases as data files in `cases/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from boardbench.errors import ExitCode, InputError
from boardbench.inventory import load_inventory
from boardbench.playbook.compile import Request, compile_playbook
from boardbench.playbook.load import load

from . import rig

PROJECT = Path(__file__).resolve().parents[3]
CASES = sorted((Path(__file__).parent / "cases").glob("*.yml"))


def shown(request: Request, folder: Path) -> dict[str, Any]:
    """A request in the words of a case: only what it has."""
    value: dict[str, Any] = {"verb": request.verb}
    if request.verb == "apply":
        value["steps"] = json.loads(json.dumps(request.steps))
    elif request.each_campaign:
        value["each_campaign"] = True
    else:
        value["args"] = dict(request.args)
    if request.blobs:
        value["blobs"] = {sha: str(Path(str(file)).relative_to(folder)) for sha, file in request.blobs.items()}
    return value


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_playbook_compiles_to_exactly_this(path: Path, tmp_path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    for name, content in case.get("files", {}).items():
        (tmp_path / name).write_text(content)
    inventory = rig.inventory(tmp_path, case.get("vars"))
    boards = inventory.select(",".join(case.get("boards", ["king"])))

    def compiled() -> dict[str, list[Request]]:
        playbook = rig.playbook(tmp_path, case["playbook"], inventory)
        programs = compile_playbook(playbook, boards, tags=case.get("tags"))
        return {program.board.name: list(program.requests) for program in programs}

    if "expect_error" in case:
        with pytest.raises(InputError) as caught:
            compiled()
        assert str(caught.value).endswith(case["expect_error"])
        assert caught.value.exit_code == ExitCode.INPUT
    elif "expect_ids" in case:
        found = {board: [step["id"] for step in requests[0].steps] for board, requests in compiled().items()}
        assert found == case["expect_ids"]
    elif "expect_payload" in case:
        (request,) = compiled()["king"]
        (step,) = request.steps
        assert step["id"] == case["expect_payload"]["id"]
        assert step["args"]["settings"] == case["expect_payload"]["settings"]
        blobs = {step["args"]["files"][0]["blob"], step["args"]["units"][0]["blob"]}
        assert set(request.blobs) == blobs
    else:
        found = {board: [shown(request, tmp_path) for request in requests] for board, requests in compiled().items()}
        assert found == case["expect"]


def test_check_and_diff_go_to_the_board(tmp_path: Path) -> None:
    playbook = rig.playbook(
        tmp_path, "version: 1\nname: a\nsteps:\n  - directory: {path: /opt/a}\n", rig.inventory(tmp_path)
    )
    boards = rig.inventory(tmp_path).select("king")
    (program,) = compile_playbook(playbook, boards, check=True, diff=True)
    args = program.requests[0].args
    assert (args["scope"], args["check"], args["diff"], args["stop_on_failure"]) == ("provision", True, True, True)


def test_a_board_that_no_step_is_for_gets_no_call(tmp_path: Path) -> None:
    text = "version: 1\nname: a\nsteps:\n  - directory: {path: /opt/a}\n    boards: [queen]\n"
    inventory = rig.inventory(tmp_path)
    (program,) = compile_playbook(rig.playbook(tmp_path, text, inventory), inventory.select("king"))
    assert program.requests == ()


@pytest.mark.parametrize("inventory", ["virtual.yml", "lab.example.yml"])
def test_provision_is_one_call_a_board(inventory: str) -> None:
    boards = load_inventory(PROJECT / "inventory" / inventory)
    playbook = load(PROJECT / "playbooks/provision.yml", boards)
    for program in compile_playbook(playbook, boards.select(None), skip_tags=["llama"]):
        assert [request.verb for request in program.requests] == ["apply"]
        resources = [step["resource"] for step in program.requests[0].steps]
        assert resources.count("payload") >= 2
        assert ("governor" in resources) == ("cpufreq" in program.board.capabilities)
        json.dumps(program.requests[0].args, allow_nan=False)


def test_teardown_puts_back_newest_first_and_purges_last() -> None:
    boards = load_inventory(PROJECT / "inventory/virtual.yml")
    playbook = load(PROJECT / "playbooks/teardown.yml", boards)
    (program,) = compile_playbook(playbook, boards.select("king"))
    assert [(request.verb, dict(request.args), request.each_campaign) for request in program.requests] == [
        ("restore", {}, True),
        ("restore", {"scope": "provision"}, False),
        ("purge", {}, False),
    ]
