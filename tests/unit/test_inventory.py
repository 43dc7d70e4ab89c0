"""The inventory: what it means, and that every mistake in it is one clear line with file and line number."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boardbench.errors import ExitCode, InputError
from boardbench.inventory import Access, Power, load_inventory

PROJECT = Path(__file__).resolve().parents[2]
BAD = Path(__file__).parent / "cases/bad/inventory"
EXPECTED = json.loads((BAD / "expected.json").read_text())

GOOD = """\
version: 1
known_hosts: keys/known_hosts
vars: {level: 1, colour: red}
groups:
  npu: {boards: [queen, king], vars: {level: 2}}
  gpu: {boards: [jetson]}
boards:
  jetson:
    kind: jetson-orin-nano
    access: {host: 192.0.2.2, port: 2222, user: bench, key: keys/id, gateway: jump.example}
    cooling: {driver: hwmon, path: /sys/class/hwmon/hwmon*/pwm1, active: 200}
    capabilities: [gpu]
    identity: {hostname: jetson, machine_id: "00000000000000000000000000000001"}
  king: {kind: nanopi-r76s, access: {alias: rig-king}, vars: {level: 3, on: yes}}
  queen: {kind: nanopi-r76s, access: {host: 192.0.2.5}}
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "lab.yml"
    path.write_text(GOOD)
    return path


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_bad_inventory_is_told_in_one_line_with_file_and_line(name: str) -> None:
    path = BAD / f"{name}.yml"
    with pytest.raises(InputError) as caught:
        load_inventory(path)
    line, says = EXPECTED[name]["line"], EXPECTED[name]["says"]
    assert caught.value.exit_code == ExitCode.INPUT
    assert str(caught.value).splitlines()[0].startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert says in str(caught.value).splitlines()[0]


def test_every_bad_file_has_an_expectation() -> None:
    assert {path.stem for path in BAD.glob("*.yml")} == set(EXPECTED)


def test_all_faults_of_a_file_are_told_at_once_the_most_telling_first() -> None:
    path = BAD / "several.yml"
    with pytest.raises(InputError) as caught:
        load_inventory(path)
    assert str(caught.value).splitlines() == [
        f"{path}:2: unknown key 'nam' in virtual; did you mean 'name'?",
        f"{path}:4: 'boards.king.kind' cannot be 'nanopi'; did you mean 'nanopi-r76s'?",
        f"{path}:5: 'boards.queen.capabilities' must be a list, not 'gpu'",
    ]


def test_a_board_gets_what_the_file_says(good: Path) -> None:
    jetson = load_inventory(good).boards["jetson"]
    assert jetson.access == Access("192.0.2.2", 2222, "bench", good.parent / "keys/id", None, "jump.example")
    assert (jetson.kind, jetson.groups, jetson.capabilities) == ("jetson-orin-nano", ("gpu",), frozenset({"gpu"}))
    assert (jetson.cooling.driver, dict(jetson.cooling.options)) == (
        "hwmon",
        {"path": "/sys/class/hwmon/hwmon*/pwm1", "active": 200},
    )
    assert jetson.identity.machine_id == "00000000000000000000000000000001"
    assert jetson.where == f"{good}:8"


def test_a_board_with_an_alias_alone_is_reached_by_it(good: Path) -> None:
    access = load_inventory(good).boards["king"].access
    assert (access.host, access.alias, access.port) == ("rig-king", "rig-king", 22)


def test_the_board_wins_over_its_group_and_the_group_over_the_inventory(good: Path) -> None:
    boards = load_inventory(good).boards
    assert {name: board.vars["level"] for name, board in boards.items()} == {"jetson": 1, "king": 3, "queen": 2}
    assert boards["king"].vars == {"level": 3, "colour": "red", "on": "yes"}


def test_known_hosts_counts_from_the_inventory_file(good: Path) -> None:
    assert load_inventory(good).known_hosts == good.parent / "keys/known_hosts"


def test_an_inventory_without_virtual_has_no_fleet_and_manual_cooling(good: Path) -> None:
    inventory = load_inventory(good)
    assert inventory.virtual is None
    assert inventory.boards["king"].cooling.driver == "manual"


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        (None, ["jetson", "king", "queen"]),
        ("all", ["jetson", "king", "queen"]),
        ("king", ["king"]),
        ("queen,king", ["king", "queen"]),
        ("npu", ["king", "queen"]),
        ("npu,jetson", ["jetson", "king", "queen"]),
        ("*n*", ["jetson", "king", "queen"]),
        ("[kq]*", ["king", "queen"]),
        ("!npu", ["jetson"]),
        ("all,!king", ["jetson", "queen"]),
        ("!king, npu", ["queen"]),
        ("g?u", ["jetson"]),
    ],
)
def test_a_limit_names_boards_groups_and_globs(good: Path, limit: str | None, names: list[str]) -> None:
    assert [board.name for board in load_inventory(good).select(limit)] == names


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("quen", "no board or group 'quen'"),
        ("quen", "did you mean 'queen'?"),
        ("NPU", "did you mean 'npu'?"),
        ("king,!quen", "did you mean 'queen'?"),
        ("x*", "no board or group 'x*'"),
        ("king,!npu", "leaves no board"),
        (" , ", "names no board"),
        ("", "names no board"),
    ],
)
def test_a_wrong_limit_is_a_clear_mistake(good: Path, limit: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        load_inventory(good).select(limit)
    assert says in str(caught.value)
    assert caught.value.where == "--limit"


def test_a_running_fleet_gives_its_boards_access(tmp_path: Path) -> None:
    inventory = load_inventory(PROJECT / "inventory/virtual.yml")
    reached = inventory.with_access({"king": Access("127.9.0.2", 2222, "root")}, tmp_path / "known")
    assert reached.boards["king"].access == Access("127.9.0.2", 2222, "root")
    assert reached.boards["queen"] == inventory.boards["queen"]
    assert reached.known_hosts == tmp_path / "known"
    assert inventory.boards["king"].access.host == "king"


def test_the_default_inventory_is_one_virtual_jetson_and_three_virtual_npu_boards() -> None:
    inventory = load_inventory(PROJECT / "inventory/virtual.yml")
    assert {name: board.kind for name, board in inventory.boards.items()} == {
        "jetson": "jetson-orin-nano",
        "king": "nanopi-r76s",
        "queen": "nanopi-r76s",
        "jack": "nanopi-r76s",
    }
    assert inventory.virtual is not None
    assert (inventory.virtual.name, inventory.virtual.kind, inventory.virtual.time_scale) == ("default", "auto", 60.0)
    assert {board.cooling.driver for board in inventory.boards.values()} == {"virtual"}


def test_the_example_of_a_lab_loads_and_names_no_real_address() -> None:
    inventory = load_inventory(PROJECT / "inventory/lab.example.yml")
    assert set(inventory.boards) == {"jetson", "king", "queen", "jack", "server"}
    assert all(board.access.host.startswith("192.0.2.") for board in inventory.boards.values())
    assert inventory.virtual is None


_WORDS = st.sampled_from(
    ["king", "queen", "npu", "all", "host", "192.0.2.1", "~", "~nobody/x", "virtual", "manual", ""]
)
_BOARD = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["host", "nanopi-r76s", "x"]),
        "access": st.fixed_dictionaries(
            {}, optional={"host": _WORDS, "port": st.sampled_from([0, 22, 22.0, 65536]), "key": _WORDS, "alias": _WORDS}
        ),
        "cooling": st.fixed_dictionaries({}, optional={"driver": _WORDS, "path": _WORDS}),
        "vars": st.dictionaries(_WORDS, _WORDS, max_size=2),
    },
)
_INVENTORY = st.fixed_dictionaries(
    {"version": st.just(1), "boards": st.dictionaries(_WORDS, _BOARD, max_size=3)},
    optional={
        "known_hosts": _WORDS,
        "virtual": st.fixed_dictionaries({}, optional={"name": _WORDS}),
        "vars": st.dictionaries(_WORDS, _WORDS, max_size=2),
        "groups": st.dictionaries(
            _WORDS,
            st.fixed_dictionaries(
                {"boards": st.lists(_WORDS, max_size=3)}, optional={"vars": st.dictionaries(_WORDS, _WORDS, max_size=2)}
            ),
            max_size=2,
        ),
    },
)


@given(_INVENTORY)
@settings(max_examples=200, deadline=None)
def test_whatever_an_inventory_says_it_is_an_inventory_or_an_input_error(value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.yml"
        path.write_text(json.dumps(value))
        said = None
        try:
            inventory = load_inventory(path)
        except InputError as error:
            said = str(error)
        assert said.startswith(f"{path}:1: ") if said is not None else inventory.select(None)


_POWERED = """\
version: 1
boards:
  king:
    kind: nanopi-r76s
    access: {{host: 192.0.2.3}}
    {section}
"""


def test_the_example_shows_cooling_and_power() -> None:
    boards = load_inventory(PROJECT / "inventory/lab.example.yml").boards
    assert boards["jetson"].cooling.options["tachometer"] == "pwm_tach"
    assert boards["jetson"].power == Power(
        "http", {"device": "shelly", "address": "http://192.0.2.20", "off_s": 10, "boot_s": 180}
    )
    assert boards["king"].power is not None
    assert boards["server"].power is None


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("cooling: {driver: hwmon}", "needs either 'name' or 'path'"),
        ("cooling: {driver: hwmon, name: pwmfan, path: /sys/x/pwm1}", "needs either 'name' or 'path'"),
        ("cooling: {driver: hwmon, name: pwmfan, fanless: 255}", "254"),
        ("cooling: {driver: hwmon, name: pwmfan, stop_units: [nvfancontrol]}", "the name of a service"),
        ("cooling: {driver: http, device: shely, address: http://192.0.2.1}", "did you mean 'shelly'"),
        ("cooling: {driver: http, device: shelly}", "address"),
        ("cooling: {driver: http, device: shelly, address: http://u:p@192.0.2.1}", "without path and password"),
        ("cooling: {driver: manual, expect: {active: {above_celsius: 20, below_celsius: 10}}}", "above and below"),
        ("cooling: {driver: manual, expect: {activ: {below_celsius: 10}}}", "did you mean 'active'"),
        ("cooling: {driver: command, active: [a], fanless: [b], read: [c], where: bord}", "did you mean 'board'"),
        ("power: {driver: command, on: [a], off: [b]}", "read"),
        ("power: {driver: htp}", "did you mean 'http'"),
        ("power: {driver: http, device: tasmota, address: http://192.0.2.1, boot_s: 0}", "boot_s|0"),
        ("power: {driver: virtual}", "is real, and the power driver 'virtual'"),
        ("power: {device: shelly}", "driver"),
    ],
)
def test_a_mistake_in_cooling_or_power_is_told_with_its_line(tmp_path: Path, section: str, words: str) -> None:
    path = tmp_path / "lab.yml"
    path.write_text(_POWERED.format(section=section))
    with pytest.raises(InputError, match=words) as raised:
        load_inventory(path)
    assert str(path) in str(raised.value)


def test_a_virtual_board_has_only_virtual_power(tmp_path: Path) -> None:
    path = tmp_path / "v.yml"
    text = "version: 1\nvirtual: {}\nboards:\n  king: {kind: nanopi-r76s, power: {driver: %s}}\n"
    path.write_text(text % "virtual")
    assert load_inventory(path).boards["king"].power == Power("virtual", {})
    path.write_text(text % "http, device: shelly, address: 'http://192.0.2.1'")
    with pytest.raises(InputError, match="use virtual"):
        load_inventory(path)
