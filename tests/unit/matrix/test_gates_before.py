"""Each gate before a run opens when its condition holds and shuts when it is broken. What is not known is not equal."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_boards import FakeBoard, Fleet

from boardbench.errors import InputError, RigError
from boardbench.inventory import Access, Board, Cooling, Identity, Inventory
from boardbench.matrix.gates import alike, before, clock
from boardbench.matrix.gates.doctor import examine
from boardbench.matrix.gates.keeper import Keeper, fresh, idle_of, keep, standing
from boardbench.matrix.gates.limits import Limits
from boardbench.results.gatewords import BY_NAME, DEFAULT_GATES

Look = dict[str, Any]
LIMITS = Limits(link="eth0", link_mbit_per_s=2500.0, idle_celsius=40.0)
WANTED = Identity(hostname="king", machine_id="id-king")


def whole_look() -> Look:
    found: Look = FakeBoard("king").verb_look({"hashes": True})["look"]
    found["links"] = [{"name": "eth0", "state": "up", "speed_mbit_per_s": 2500}]
    found["cpu_policies"] = [
        {"policy": "policy0", "governor": "performance", "max_khz": 2016000, "hw_max_khz": 2016000, "capped_by": []}
    ]
    return found


def judged(found: Look, limits: Limits = LIMITS) -> dict[str, Any]:
    entries = fresh(found, board(), limits, idle_of(limits, found))
    return {entry["gate"]: entry for entry in [*entries, before.cache(found)]}


def board(name: str = "king", **vars_: Any) -> Board:
    return Board(
        name, "nanopi-r76s", Access(f"{name}.lab"), (), frozenset(), Cooling("manual"), WANTED, vars_, "lab.yml:7"
    )


def set_at(*keys: str | int, value: Any) -> Callable[[Look], None]:
    def change(found: Look) -> None:
        at: Any = found
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return change


STRAY = {"pid": 7, "exe": "/opt/burn.py", "unit": None, "how": "script"}
PROCESS = {"pid": 9, "exe": "/usr/bin/cc1", "argv0": "cc1", "script": None, "unit": "cron.service", "cpu_share": 0.9}
BROKEN = [
    ("identity", set_at("board", "hostname", value="queen"), "hostname is 'queen'"),
    ("identity", set_at("board", "machine_id", value=None), "machine_id is None"),
    ("clock-sync", set_at("clock", "offset_s", value=7.5), "+7.500 s off"),
    ("clock-sync", set_at("clock", "stamp", "wall_unix_s", value=86400.0), "never synchronised"),
    ("clock-sync", set_at("clock", "offset_s", value={"missing": "no"}), "not measured"),
    ("disk", set_at("disk", "free_bytes", value=1_000_000), "1 MB free"),
    ("disk", set_at("disk", "free_bytes", value={"missing": "EIO"}), "not known"),
    ("writable", set_at("disk", "read_only", value=True), "read-only"),
    ("writable", set_at("disk", "probe", value={"ok": False, "why": "Input/output error"}), "Input/output error"),
    ("volts", set_at("input_volts", value=4.71), "4.71 V"),
    ("link", set_at("links", 0, "speed_mbit_per_s", value=100), "100 Mbit/s, 2500 are declared"),
    ("link", set_at("links", 0, "state", value="down"), "eth0 is down"),
    ("link", set_at("links", 0, "speed_mbit_per_s", value={"missing": "EINVAL"}), "cannot be read"),
    ("link", set_at("links", value=[]), "no link eth0"),
    ("throttled", set_at("cpu_policies", 0, "max_khz", value=1608000), "1608 of 2016 MHz"),
    ("idle", set_at("thermal", 0, "celsius", value=58.0), "18.0 above"),
    ("idle", set_at("thermal", 0, "celsius", value={"missing": "EIO"}), "no reading"),
    ("strays", set_at("strays", value=[STRAY]), "/opt/burn.py (pid 7, by script)"),
    ("quiet", set_at("load", "processes", value=[PROCESS]), "/usr/bin/cc1 (pid 9, cron.service: 90% of a core)"),
    ("quiet", set_at("load", "registered", value=[{"name": "3.json", "load": {}}]), "registered load 3.json"),
    ("cache", set_at("drop_caches", value={"ok": False, "why": "Read-only file system"}), "Read-only file system"),
]


def test_a_board_in_order_passes_every_gate_and_nothing_is_unknown() -> None:
    for gate, entry in judged(whole_look()).items():
        assert (entry["ok"], entry["why"]) == (True, ""), gate
        assert entry["saw"], f"{gate} leaves no evidence"


@pytest.mark.parametrize(("gate", "change", "why"), BROKEN, ids=[f"{gate}-{why[:20]}" for gate, _, why in BROKEN])
def test_a_broken_condition_shuts_its_own_gate_and_no_other(
    gate: str, change: Callable[[Look], None], why: str
) -> None:
    found = whole_look()
    change(found)
    shut = {name: entry["why"] for name, entry in judged(found).items() if not entry["ok"]}
    assert list(shut) == [gate], shut
    assert why in shut[gate]


def test_every_gate_that_a_look_answers_is_broken_here() -> None:
    assert {gate for gate, _, _ in BROKEN} == set(judged(whole_look()))


def test_between_campaigns_an_enabled_service_is_no_stray() -> None:
    service = {**STRAY, "unit": "server.service", "enabled": True}
    evidence = before.strays_at_rest({"strays": [service]})
    assert (evidence["ok"], "server.service" in evidence["why"]) == (True, True)
    assert not before.strays({"strays": [service]})["ok"]
    assert not before.strays_at_rest({"strays": [service, {**STRAY, "enabled": False}]})["ok"]
    assert before.strays_at_rest({"strays": []})["why"] == ""


def test_a_real_board_whose_cpus_are_busy_without_a_name_is_not_quiet() -> None:
    found = whole_look()
    found["load"] |= {"registered": None, "cpu_busy_share": 0.4}
    entry = judged(found)["quiet"]
    assert not entry["ok"]
    assert "40% busy" in entry["why"]
    found["load"]["cpu_busy_share"] = 0.02
    assert judged(found)["quiet"]["ok"]


def test_a_virtual_board_is_not_blamed_for_its_hosts_cpu_use() -> None:
    found = whole_look()
    found["load"] |= {"registered": [], "cpu_busy_share": 1.0}
    assert judged(found)["quiet"]["ok"]


def test_a_cap_of_ours_is_no_throttling() -> None:
    found = whole_look()
    found["cpu_policies"][0] |= {"max_khz": 1608000, "capped_by": ["campaign-1"]}
    assert judged(found)["throttled"]["ok"]


@pytest.mark.parametrize(
    ("gate", "change"),
    [
        ("volts", set_at("input_volts", value={"missing": "no sensor"})),
        ("throttled", set_at("cpu_policies", value=[])),
        ("quiet", set_at("load", value=None)),
    ],
)
def test_what_is_not_known_passes_but_says_so(gate: str, change: Callable[[Look], None]) -> None:
    found = whole_look()
    change(found)
    entry = judged(found)[gate]
    assert entry["ok"]
    assert entry["why"]


def test_without_a_declaration_the_link_and_the_idle_temperature_are_said_to_be_unknown() -> None:
    entries = judged(whole_look(), Limits())
    assert entries["link"]["ok"]
    assert "nothing is declared" in entries["link"]["why"]
    assert idle_of(Limits(), whole_look()) == (41.5, "at rest before the campaign (it may have been cooler)")


def test_a_board_under_load_tells_no_idle_temperature() -> None:
    found = whole_look()
    found["load"]["registered"] = [{"name": "3.json", "load": {}}]
    assert idle_of(Limits(), found)[0] is None
    assert idle_of(Limits(), None)[0] is None
    assert idle_of(LIMITS, None) == (40.0, "inventory")


@pytest.mark.parametrize(
    ("aspect", "change"),
    [
        ("kernel", set_at("image", "kernel", value="6.6")),
        ("firmware", set_at("image", "rom_version", value="20251222")),
        ("runtime", set_at("runtime", "python", value="3.8.1")),
        ("payload", set_at("payloads", "burn", value="2" * 64)),
        ("payload", set_at("payloads", value={})),
        ("governor", set_at("cpu_policies", 0, "governor", value="ondemand")),
        ("link", set_at("links", 0, "speed_mbit_per_s", value=1000)),
    ],
)
def test_a_difference_between_boards_of_a_kind_is_named_with_both_values(
    aspect: str, change: Callable[[Look], None]
) -> None:
    looks = {"king": whole_look(), "queen": copy.deepcopy(whole_look())}
    assert alike.judge("king", looks, aspect)["ok"]
    change(looks["queen"])
    entry = alike.judge("king", looks, aspect)
    assert not entry["ok"]
    assert "queen has" in entry["why"]


def test_two_boards_that_could_not_be_read_are_unknown_not_equal() -> None:
    looks = {"king": whole_look(), "queen": whole_look()}
    entry = alike.judge("king", looks, "firmware")
    assert entry["ok"]
    assert "not known on any board" in entry["why"]
    looks["queen"]["runtime"] = None
    assert not alike.judge("king", looks, "runtime")["ok"]


def test_two_boards_with_one_host_key_are_told_apart_and_warned_about(tmp_path: Path) -> None:
    pins = tmp_path / "known_hosts"
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDlMbVjuDjBnC0hGgkkDMb4VlCeKVdQ4V8JUfR3bBUlJ"
    pins.write_text(f"king.lab {key}\nqueen.lab {key}\n")
    boards = {name: board(name) for name in ("king", "queen")}
    inventory = Inventory(tmp_path / "lab.yml", boards, {}, pins, None)
    held = standing(inventory, boards, {name: whole_look() for name in boards})
    shared = next(entry for entry in held["king"] if entry["gate"] == "host-key")
    assert not shared["ok"]
    assert shared["saw"]["shared_with"] == ["queen"]
    assert ("king", f"host-key: {shared['why']}") in Keeper(held=held).warnings()
    assert not BY_NAME["host-key"].fatal


def test_a_required_gate_that_no_waiting_opens_stops_the_campaign_before_it_begins(tmp_path: Path) -> None:
    boards = {"king": board()}
    inventory = Inventory(tmp_path / "lab.yml", boards, {}, tmp_path / "known_hosts", None)

    def start(found: Look, required: tuple[str, ...] = DEFAULT_GATES) -> Keeper:
        return keep(
            inventory, boards, {"king": found}, required=required, estimate_bytes=0, zone_types=(), sets_governor=False
        )

    start(whole_look())
    low = whole_look()
    low["input_volts"] = 4.5
    with pytest.raises(RigError, match=r"king: volts: 4\.50 V"):
        start(low)
    start(low, required=("strays",))
    hot = whole_look()
    hot["strays"] = [STRAY]
    start(hot)  # ended before the first run


def test_the_estimate_of_what_runs_leave_is_wanted_beside_the_reserve() -> None:
    found = whole_look()
    found["disk"]["free_bytes"] = 100_000_000
    assert before.disk(found, Limits.of(board()))["ok"]
    assert not before.disk(found, Limits.of(board(), estimate_bytes=50_000_000))["ok"]


def test_limits_come_from_the_inventory_and_must_be_numbers() -> None:
    limits = Limits.of(board(min_input_volts=11.4, link="eth1", link_mbit_per_s=2500))
    assert (limits.min_input_volts, limits.link, limits.link_mbit_per_s) == (11.4, "eth1", 2500.0)
    with pytest.raises(InputError, match="min_input_volts"):
        Limits.of(board(min_input_volts="low"))


def test_no_clock_may_be_older_than_the_program_itself() -> None:
    assert clock.built_unix_s() > 1_700_000_000


def test_the_wait_before_a_run_ends_near_the_boards_own_idle_temperature() -> None:
    def below(idle_celsius: float | None, limit: float = 50.0) -> float:
        return Keeper(idle={"king": (idle_celsius, "inventory")}).start_below(board(), limit)

    assert below(33.0) == 43.0
    assert below(45.0) == 50.0
    assert below(None) == 50.0
    assert Keeper().start_below(board(max_above_idle_celsius=3), 50.0) == 50.0


def test_the_doctor_gives_a_finding_per_board_and_gate_and_keeps_lost_boards_apart() -> None:
    fleet = Fleet("king", "queen", "jack")
    fleet.unreachable["jack"] = RigError("no answer", where="jack")
    fleet["queen"].change_look = set_at("input_volts", value=4.2)
    found = examine(fleet.inventory, fleet.boards, fleet.open)
    assert set(found.lost) == {"jack"}
    assert found.worst() == "fail"
    bad = [finding for finding in found.findings if finding.state == "fail"]
    assert [(finding.board, finding.gate) for finding in bad] == [("queen", "volts")]
    assert "supply" in bad[0].advice
    assert {finding.board for finding in found.findings} == {"king", "queen"}
    assert fleet["king"].verbs() == ["look", "lease", "scopes"]


def test_the_doctor_shows_what_a_dead_campaign_left_and_what_to_do() -> None:
    fleet = Fleet("king", "queen")
    fleet["king"].noted["campaign-20260101T000000Z-0a0b0c0d"] = {"governor": "ondemand"}
    found = examine(fleet.inventory, fleet.boards, fleet.open)
    told = {finding.board: finding for finding in found.findings if finding.gate == "leftovers"}
    assert (told["king"].state, told["queen"].state) == ("warn", "ok")
    why = str(told["king"].evidence["why"])
    assert "died and left 1 changed values" in why
    assert "--resume 20260101T000000Z-0a0b0c0d" in why
    assert "teardown" in why


def test_the_keeper_looks_again_before_it_blames_a_job_of_a_moment() -> None:
    fleet = Fleet("king")
    looks = []

    def busy_once(found: Look) -> None:
        looks.append(found)
        if len(looks) == 1:
            found["load"]["processes"] = [PROCESS]

    fleet["king"].change_look = busy_once
    with fleet.open(fleet.boards[0]) as door:
        evidence = Keeper().before_run(door, fleet.boards[0], "run-1")
    assert len(looks) == 2
    assert next(entry for entry in evidence if entry["gate"] == "quiet")["ok"]
