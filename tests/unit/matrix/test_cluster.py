"""Waves whose boards work together: who is in them, with which command line, and when they do not start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from boardbench.errors import InputError
from boardbench.inventory import Access, Board, Cooling, Identity
from boardbench.matrix.cluster import place_of, unfit_cells, whole
from boardbench.matrix.given import check_commands
from boardbench.matrix.load import choose_boards, load_matrix
from boardbench.matrix.plan import Plan, make_plan
from boardbench.results import schema
from boardbench.workloads.base import Durations
from boardbench.workloads.registry import workload

PROJECT = Path(__file__).parents[3]
OURS = ("scale-out", "operating-point", "cluster-thermal", "cluster-ladder", "policy-ab", "failover", "herding", "soak")
KINDS = {"jetson": "jetson-orin-nano", "king": "nanopi-r76s", "queen": "nanopi-r76s", "jack": "nanopi-r76s"}


def board(name: str, number: int, kind: str = "") -> Board:
    access = Access(f"127.1.0.{number}", 2222, "pi")
    cooling, where = Cooling("virtual"), f"inventory.yml:{number}"
    return Board(name, kind or KINDS[name], access, (), frozenset(), cooling, Identity(name), {}, where)


BOARDS = [board(name, number) for number, name in enumerate(KINDS, start=10)]


def plan_of(name: str, boards: list[Board] = BOARDS, scale: float = 60.0) -> Plan:
    matrix = load_matrix(PROJECT / "playbooks" / "matrices" / f"{name}.yml")
    return make_plan(matrix, choose_boards(matrix, boards), scale)


@pytest.mark.parametrize("name", OURS)
def test_the_projects_own_matrices_have_plans_that_fit_the_schema(name: str) -> None:
    plan = plan_of(name)
    assert list(schema.faults(plan.document(), "plan")) == []
    for wave in plan.waves:
        assert [cell.role for cell in wave][-1] == "load"
        assert [cell.role for cell in wave].count("load") == 1
        assert wave[-1].boards == ("jetson",)


def test_an_arm_has_as_many_nodes_as_it_says() -> None:
    plan = plan_of("scale-out")
    nodes = {wave[0].arm: [cell.boards[0] for cell in wave if cell.role == "node"] for wave in plan.waves}
    assert nodes == {"nodes1": ["king"], "nodes2": ["king", "queen"], "nodes3": ["king", "queen", "jack"]}


def test_a_host_is_the_loads_board_before_any_other() -> None:
    plan = plan_of("scale-out", [*BOARDS, board("server", 20, "host")])
    assert plan.boards == ("king", "queen", "jack", "server")


def test_without_a_board_for_the_load_it_is_refused() -> None:
    with pytest.raises(InputError, match="none of the boards given can be the load's"):
        plan_of("scale-out", BOARDS[1:])


def test_more_nodes_than_there_are_boards_are_refused() -> None:
    with pytest.raises(InputError, match="an arm wants 3 nodes, 1 boards can be one"):
        plan_of("scale-out", BOARDS[:2])


def test_a_load_is_never_shorter_than_the_matrix_says_however_fast_time_runs() -> None:
    plan = plan_of("scale-out")
    assert plan.window_s == pytest.approx(40.0)
    assert plan.interval_s == pytest.approx(5 * 40 / 60)
    assert plan_of("scale-out", scale=1.0).window_s == 60.0
    assert plan_of("cluster-thermal").window_s == pytest.approx(31.0)


def test_every_part_gets_its_own_command_line() -> None:
    plan = plan_of("scale-out")
    wave = next(wave for wave in plan.waves if wave[0].arm == "nodes2")
    together = workload("npu-load")
    known = {one.name: one for one in BOARDS}
    options = plan.options(plan.arm("nodes2"))
    argvs = [
        together.part(place_of(cell, wave, known, virtual=True), "run", options, Durations(15.0, 1.25, None, 20.0))  # type: ignore[attr-defined]
        for cell in wave
    ]
    node, load = argvs[0], argvs[-1]
    assert node[3] == "node"
    assert node[node.index("--name") + 1] == "king"
    assert node[node.index("--listen") + 1] == "127.1.0.11:51001"
    assert node[node.index("--scheduler") + 1] == "127.1.0.10:50051"
    assert node[node.index("--backend") + 1] == "virtual"
    assert load[3] == "load"
    assert load[load.index("--nodes") + 1] == "king,queen"
    assert load[load.index("--concurrency") + 1] == "24"


def test_hardware_never_gets_the_model_of_an_npu() -> None:
    plan = plan_of("scale-out", scale=1.0)
    wave = plan.waves[0]
    known = {one.name: one for one in BOARDS}
    place = place_of(wave[0], wave, known, virtual=False)
    model = {"model_file": "/srv/yolov8n.rknn", "model_sha256": 64 * "a", "libraries": "/home/pi/npu"}
    argv = workload("npu-load").part(place, "run", model, Durations(60.0, 5.0))  # type: ignore[attr-defined]
    assert argv[argv.index("--backend") + 1] == "rknn"
    for option, value in model.items():
        assert argv[argv.index(f"--{option.replace('_', '-')}") + 1] == value


def test_a_node_of_hardware_must_know_its_model_before_anything_is_touched() -> None:
    plan = plan_of("scale-out", scale=1.0)
    boards = {one.name: one for one in BOARDS}
    check_commands(plan, boards, virtual=True)
    with pytest.raises(InputError, match="king: backend 'rknn' needs to know its model; give the board the variables"):
        check_commands(plan, boards, virtual=False)
    model = {"npu_model": "/srv/yolov8n.rknn", "npu_model_sha256": 64 * "a"}
    check_commands(plan, {name: replace(one, vars=model) for name, one in boards.items()}, virtual=False)


def test_a_fault_befalls_one_node_and_another_one_in_the_next_repetition() -> None:
    plan = plan_of("failover")
    known = {one.name: one for one in BOARDS}
    together = workload("npu-load")
    struck: dict[str, list[tuple[str, float]]] = {}
    for wave in plan.waves:
        arm, hit = wave[0].arm, []
        for cell in wave:
            place = place_of(cell, wave, known, virtual=True, seed=plan.matrix.seed)
            argv = together.part(place, "run", plan.options(plan.arm(arm)), Durations(60.0, 5.0, None, 20.0))  # type: ignore[attr-defined]
            if "--fault" in argv:
                hit.append((cell.boards[0], float(argv[argv.index("--fault-at") + 1])))
        assert len(hit) == 1
        struck.setdefault(arm, []).append(hit[0])
    by_repetition = {arm: sorted(hits) for arm, hits in struck.items()}
    # Each arm has the same faults, so that arms differ by the kind of fault alone.
    assert len({tuple(hits) for hits in by_repetition.values()}) == 1
    hits = next(iter(by_repetition.values()))
    assert {node for node, _ in hits} == {"king", "queen", "jack"}
    assert len({at for _, at in hits}) == len(hits)
    assert all(0.2 <= at <= 0.5 for _, at in hits)


def test_boards_may_reach_each_other_by_another_address() -> None:
    plan = plan_of("scale-out")
    wave = next(wave for wave in plan.waves if wave[0].arm == "nodes1")
    known = {one.name: one for one in BOARDS}
    known["king"] = replace(known["king"], vars={"cluster_address": "10.20.0.21"})
    assert place_of(wave[0], wave, known, virtual=True).nodes == (("king", "10.20.0.21"),)


def test_a_wave_that_works_together_runs_whole_or_not_at_all() -> None:
    together = plan_of("scale-out").waves[0]
    assert whole(together, together[:1]) == list(together)
    assert whole(together, []) == []
    assert set(unfit_cells(together, {together[0].boards[0]: "it is away"})) == {cell.name for cell in together}
    matrix = load_matrix(PROJECT / "playbooks" / "matrices" / "thermal.yml")
    apart = make_plan(matrix, choose_boards(matrix, BOARDS), 60.0).waves[0]
    assert whole(apart, apart[:1]) == [apart[0]]
    assert list(unfit_cells(apart, {apart[0].boards[0]: "it is away"})) == [apart[0].name]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("together: cluster", "together: each", "is for 'together: cluster'"),
        ("name: npu-load", "name: burn", "is for 'together: each'"),
        ("concurrency_per_node: 12", "concurrency_per_node: 0", "concurrency_per_node"),
    ],
)
def test_a_matrix_that_mixes_the_two_forms_is_told_so(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (PROJECT / "playbooks" / "matrices" / "scale-out.yml").read_text()
    path = tmp_path / "m.yml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=said):
        load_matrix(path)


def test_levels_call_an_options_values_by_words_without_hyphens() -> None:
    assert [arm.options for arm in plan_of("herding").arms] == [{"stale": False}, {"stale": True}]
    policies = [arm.options["policy"] for arm in plan_of("policy-ab").arms]
    assert policies == ["round-robin", "least-queue", "ect"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "roundrobin",
            "roundrobn",
            r"m\.yml:\d+: option 'policy' cannot be 'roundrobn'; levels for it: roundrobin, leastq",
        ),
        (
            "policy: {kind",
            "polcy: {kind",
            r"m\.yml:\d+: workload npu-load has no option 'polcy'; did you mean",
        ),
        ("policy: {kind", "workers: {kind", "option 'workers' cannot be 'roundrobin'"),
    ],
)
def test_a_level_that_its_option_cannot_be_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (PROJECT / "playbooks" / "matrices" / "policy-ab.yml").read_text()
    path = tmp_path / "m.yml"
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=said):
        load_matrix(path)


@pytest.mark.parametrize("word", ["'no'", "'false'", "0", "1"])
def test_plaintext_is_true_or_false_in_a_level_too(tmp_path: Path, word: str) -> None:
    text = (PROJECT / "playbooks" / "matrices" / "herding.yml").read_text()
    path = tmp_path / "m.yml"
    stage = f"states: {{kind: stage, levels: {{fresh: {{workload: {{plaintext: {word}}}}}}}}}"
    path.write_text(text.replace("states: {kind: workload, option: stale, levels: [fresh, stale]}", stage))
    with pytest.raises(InputError, match=r"m\.yml:\d+: option 'plaintext' cannot be"):
        load_matrix(path)


def test_a_load_is_scaled_down_to_its_shortest_length_and_real_work_not_at_all() -> None:
    plan = plan_of("scale-out")
    matrix = replace(plan.matrix, duration_s=60.0, interval_s=6.0, min_wall_s=0.0)
    assert replace(plan, matrix=matrix).window_s == 1.0
    shortest = replace(plan, matrix=replace(matrix, min_wall_s=15.0))
    assert (shortest.window_s, shortest.interval_s) == (15.0, 1.5)
    # What cools and what logs goes on by the board's time.
    assert shortest.logger_period_s == replace(plan, matrix=matrix).logger_period_s
    work = replace(shortest, matrix=replace(shortest.matrix, workload="llama-load"))
    assert (work.window_s, work.interval_s) == (60.0, 6.0)
