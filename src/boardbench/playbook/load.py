"""Reads a playbook: desired state as data with a closed vocabulary, every fault named as file:line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.inventory import Board, Inventory, Value
from boardbench.locations import project_dir
from boardbench.payload import Payload, find_payload
from boardbench.yamlfile import Document, did_you_mean, parse, read_bytes

from .variables import holds_variable

RESOURCES = (
    "directory", "file", "package", "unit", "sysfs", "sysctl", "governor", "user", "command", "payload",
)  # fmt: skip
# Steps that are verbs of their own: they undo what earlier calls did, so they cannot be part of one.
UNDOING = ("restore", "purge")
FACTS = (
    "hostname", "machine_id", "serial", "boot_id", "model", "compatible", "os", "kernel", "arch", "python",
    "cpu_count", "memory_total_bytes", "memory_available_bytes", "uptime_s", "clock", "disks", "service_manager",
    "thermal", "cpu_policies", "devfreq", "input_volts", "fans", "power_rails", "nvpmodel", "links", "virtual",
)  # fmt: skip
DEFAULT_DEADLINE_S = 1800.0


@dataclass(frozen=True)
class Step:
    """One line of desired state: a resource, its arguments as written, and which boards it is for."""

    index: int
    resource: str
    args: Mapping[str, Any]
    name: str | None
    when: Mapping[str, Value | None]
    tags: frozenset[str]
    boards: frozenset[str]
    line: str


@dataclass(frozen=True)
class Playbook:
    """A checked playbook; `vars` are defaults below the inventory's; `deadline_s` bounds each call to a board."""

    path: Path
    name: str
    vars: Mapping[str, Value]
    steps: tuple[Step, ...]
    deadline_s: float
    payloads: Mapping[str, Payload]
    document: Document

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag of the playbook, sorted."""
        return tuple(sorted({tag for step in self.steps for tag in step.tags}))


def load(path: Path, inventory: Inventory, *, payloads: Path | None = None) -> Playbook:
    """Read a playbook for the boards of an inventory; `InputError` with file:line for everything that is wrong.

    `payloads`: the folder that payload names are looked up in, by default the project's.
    """
    document = parse(read_bytes(path), path)
    document.check("playbook", leave_out=holds_variable)
    data = document.data
    steps = tuple(_step(document, index, inventory) for index in range(len(data["steps"])))
    folder = project_dir() / "payloads" if payloads is None else payloads
    return Playbook(
        path=path,
        name=data["name"],
        vars=data.get("vars", {}),
        steps=steps,
        deadline_s=float(data.get("deadline_s", DEFAULT_DEADLINE_S)),
        payloads=_payloads(document, steps, folder, inventory),
        document=document,
    )


def _step(document: Document, index: int, inventory: Inventory) -> Step:
    data = document.data["steps"][index]
    resource = _resource(document, index)
    args = data[resource]
    check_args(document, index, resource, args)
    for fact in data.get("when", {}):
        if fact.split(".")[0] not in FACTS:
            raise document.error(
                "steps", index, "when", fact, what=f"unknown fact '{fact}'", advice=did_you_mean(fact, FACTS)
            )
    if resource in UNDOING and "when" in data:
        raise document.error("steps", index, "when", what=f"'{resource}' takes no 'when'", advice="remove it")
    return Step(
        index=index,
        resource=resource,
        args=args,
        name=data.get("name"),
        when=data.get("when", {}),
        tags=frozenset(data.get("tags", [])),
        boards=frozenset(board.name for board in _chosen(document, index, inventory)),
        line=f"{document.path.name}:{document.where('steps', index).rpartition(':')[2]}",
    )


def _resource(document: Document, index: int) -> str:
    named: list[str] = [key for key in document.data["steps"][index] if key in RESOURCES or key in UNDOING]
    if not named:
        raise document.error(
            "steps", index, what="this step names no resource", advice=f"add one of: {', '.join(RESOURCES)}"
        )
    if len(named) > 1:
        raise document.error(
            "steps", index, named[1],
            what=f"a step names one resource, and this one names '{named[0]}' and '{named[1]}'",
            advice="make two steps of it",
        )  # fmt: skip
    return named[0]


def check_args(document: Document, index: int, resource: str, args: Mapping[str, Any]) -> None:
    """Rules between the arguments of one resource that a schema says badly."""

    def fault(what: str, advice: str, *keys: str) -> InputError:
        return document.error("steps", index, resource, *keys, what=what, advice=advice)

    given = [key for key in ("source", "content") if key in args]
    absent = args.get("state") == "absent"
    if resource in {"file", "unit"}:
        if len(given) == 2:
            raise fault("'source' and 'content' exclude each other", "keep one of them", "content")
        if absent and given:
            raise fault(f"what is to be absent has no '{given[0]}'", f"remove '{given[0]}'", given[0])
        if resource == "file" and not given and not absent:
            raise fault("the file has no contents", "add 'source: FILE' or 'content: TEXT'")
        if absent and any(args.get(key) is True for key in ("enabled", "active")):
            raise fault("a unit that is to be absent cannot be enabled or active", "remove those keys", "state")
    if resource == "command":
        guards = [key for key in ("creates", "unless") if key in args]
        if len(guards) == 2:
            raise fault("'creates' and 'unless' exclude each other", "keep one of them", "unless")
        if not guards:
            raise fault(
                "nothing says when the command is done already, so it would run each time",
                "add 'creates: PATH' or 'unless: [ARGV]'",
            )


def _chosen(document: Document, index: int, inventory: Inventory) -> list[Board]:
    """The boards that a step is for: all conditions that it names must hold."""
    data = document.data["steps"][index]
    chosen = list(inventory.boards.values())
    for key, known in (("boards", set(inventory.boards)), ("groups", set(inventory.groups))):
        if key not in data:
            continue
        names: set[str] = set()
        for position, term in enumerate(data[key]):
            if not any(character in term for character in "*?[") and term not in known:
                raise document.error(
                    "steps", index, key, position,
                    what=f"unknown {key[:-1]} '{term}'",
                    advice=did_you_mean(term, sorted(known), kind=key),
                )  # fmt: skip
            names |= inventory.named(term, document.where("steps", index, key, position))
        chosen = [board for board in chosen if board.name in names]
    if "kinds" in data:
        chosen = [board for board in chosen if board.kind in data["kinds"]]
    wanted = set(data.get("capabilities", []))
    return [board for board in chosen if wanted <= board.capabilities]


def _payloads(document: Document, steps: tuple[Step, ...], folder: Path, inventory: Inventory) -> dict[str, Payload]:
    found: dict[str, Payload] = {}
    for step in steps:
        if step.resource != "payload":
            continue
        keys = ("steps", step.index, "payload", "name")

        def unknown(what: str, advice: str, keys: tuple[str | int, ...] = keys) -> InputError:
            return document.error(*keys, what=what, advice=advice)

        name = step.args["name"]
        if holds_variable(name):
            raise unknown("a payload's name cannot be a variable", "name the payload")
        payload = found.setdefault(name, found.get(name) or find_payload(folder, name, unknown))
        for board in sorted(step.boards):
            kind = inventory.boards[board].kind
            if kind not in payload.kinds:
                raise unknown(
                    f"payload '{name}' is not made for {kind} (board '{board}')",
                    f"add 'kinds: [{', '.join(payload.kinds)}]' to this step",
                )
    return found
