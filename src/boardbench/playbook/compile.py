"""Turns a playbook into what each board is asked to do: as few calls as can be, usually exactly one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.builds.programs import PINNED
from boardbench.errors import BugError, InputError
from boardbench.inventory import Board, Value
from boardbench.payload import Payload, hash_file
from boardbench.yamlfile import Document, did_you_mean

from .load import UNDOING, Playbook, Step, check_args
from .variables import put_in, variables_of

PROVISION = "provision"
CAMPAIGNS = "campaigns"
# The tag of a step that is not for every board and day: it runs when another of its tags is asked for.
ON_DEMAND = "on-demand"
# Gives a board's payload what it lacks; builds take the source that a step names.
Complete = Callable[[Payload, Board, str], Payload]
# What a step is about, for its id: the first of these arguments that it has.
_SUBJECT = ("path", "name", "names", "argv", "governor", "scope")


@dataclass(frozen=True)
class Request:
    """One call of a board: verb, arguments, and the blobs that it refers to (SHA-256 -> file).

    `each_campaign`: the call is made once for every scope of a campaign that the board still has to put back.
    """

    verb: str
    args: Mapping[str, Any]
    blobs: Mapping[str, Path | bytes]
    each_campaign: bool = False

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """The steps of an `apply`, none for other verbs."""
        steps: Sequence[Mapping[str, Any]] = self.args.get("steps", ())
        return steps


@dataclass(frozen=True)
class BoardProgram:
    """All that a playbook asks of one board, in order."""

    board: Board
    requests: tuple[Request, ...]


def compile_playbook(
    playbook: Playbook,
    boards: Sequence[Board],
    *,
    tags: Collection[str] | None = None,
    skip_tags: Collection[str] = (),
    check: bool = False,
    diff: bool = False,
    complete: Complete | None = None,
) -> tuple[BoardProgram, ...]:
    """The program of every board; `InputError` before any board is touched.

    `tags`: only steps with one of them; `skip_tags`: no step with one of them. `complete` is asked for payloads that
    lack something.
    """
    for option, given in (("--tags", tags or ()), ("--skip-tags", skip_tags)):
        for tag in given:
            if tag not in playbook.tags:
                raise InputError(
                    f"no step of {playbook.path} has the tag '{tag}'",
                    where=option,
                    advice=did_you_mean(tag, playbook.tags, kind="tags"),
                )
    return tuple(
        _program(playbook, board, chosen(playbook, board, tags, skip_tags), check, diff, complete) for board in boards
    )


def chosen(
    playbook: Playbook, board: Board, tags: Collection[str] | None = None, skip_tags: Collection[str] = ()
) -> list[Step]:
    """The steps that are for a board and for these tags; those on demand only when a tag of theirs is named."""
    return [
        step
        for step in playbook.steps
        if board.name in step.boards
        and (step.tags.intersection(tags) if tags else ON_DEMAND not in step.tags)
        and not step.tags.intersection(skip_tags)
    ]


def incomplete(playbook: Playbook, steps: Sequence[Step]) -> list[Payload]:
    """The payloads of these steps that lack something."""
    wanted = [step for step in steps if step.resource == "payload" and step.args.get("state") != "absent"]
    return [payload for step in wanted if (payload := playbook.payloads[step.args["name"]]).lacks]


def _program(
    playbook: Playbook, board: Board, steps: list[Step], check: bool, diff: bool, complete: Complete | None
) -> BoardProgram:
    document = _filled(playbook, board, steps)
    requests: list[Request] = []
    wire: list[dict[str, Any]] = []
    blobs: dict[str, Path | bytes] = {}

    def close() -> None:
        if wire:
            args = {
                "scope": PROVISION,
                "steps": list(wire),
                "check": check,
                "diff": diff,
                "stop_on_failure": True,
            }
            requests.append(Request("apply", args, dict(blobs)))
            wire.clear()
            blobs.clear()

    for step in steps:
        args = document.data["steps"][step.index][step.resource]
        if step.resource in UNDOING:
            close()
            requests.append(_undoing(step, args))
        else:
            wire.append(_wire_step(playbook, document, step, args, wire, blobs, board, complete))
    close()
    return BoardProgram(board, tuple(requests))


def _filled(playbook: Playbook, board: Board, steps: list[Step]) -> Document:
    """The playbook with the board's variables put in, checked once more: only now all values are known."""
    variables: dict[str, Value] = variables_of(board, playbook.vars)
    data = copy.deepcopy(playbook.document.data)
    for step in steps:
        keys = ("steps", step.index, step.resource)
        data["steps"][step.index][step.resource] = put_in(step.args, variables, playbook.document, *keys)
    # Steps that this board does not get keep their variables, and are not judged here.
    others = set(range(len(data["steps"]))) - {step.index for step in steps}
    for index in others:
        data["steps"][index] = {"purge": {}}
    document = playbook.document.with_data(data)
    document.check("playbook")
    for step in steps:
        check_args(document, step.index, step.resource, data["steps"][step.index][step.resource])
    return document


def _undoing(step: Step, args: Mapping[str, Any]) -> Request:
    if step.resource == "purge":
        return Request("purge", {}, {})
    if args["scope"] == CAMPAIGNS:
        return Request("restore", {}, {}, each_campaign=True)
    return Request("restore", {"scope": args["scope"]}, {})


def _wire_step(
    playbook: Playbook,
    document: Document,
    step: Step,
    args: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]],
    blobs: dict[str, Path | bytes],
    board: Board,
    complete: Complete | None,
) -> dict[str, Any]:
    if step.resource == "payload":
        wire_args = _payload_args(playbook.payloads[args["name"]], args, blobs, board, complete)
    else:
        wire_args = dict(args)
        if "source" in args:
            wire_args.pop("source")
            wire_args.update(_blob(document, step, args["source"], blobs))
    return {
        "id": _id(step, args, {other["id"] for other in earlier}),
        "resource": step.resource,
        "args": wire_args,
        "when": dict(step.when),
        "line": step.line,
    }


def _payload_args(
    payload: Payload,
    args: Mapping[str, Any],
    blobs: dict[str, Path | bytes],
    board: Board,
    complete: Complete | None,
) -> dict[str, Any]:
    if "settings" in args:
        payload = payload.with_settings(args["settings"])
    if args.get("state") == "absent":
        return {**payload.as_args(), "state": "absent"}
    if payload.lacks:
        if complete is None:
            raise BugError(f"payload '{payload.name}' lacks what is built or fetched for it", where=board.name)
        payload = complete(payload, board, args.get("source", PINNED))
    blobs.update(payload.blobs())
    return payload.as_args()


def _blob(document: Document, step: Step, name: str, blobs: dict[str, Path | bytes]) -> dict[str, Any]:
    # Sources count from the playbook's folder, so that a playbook means the same from anywhere.
    source = document.path.parent / name
    keys = ("steps", step.index, step.resource, "source")
    if not source.is_file():
        what = "is a folder" if source.is_dir() else "does not exist"
        raise document.error(*keys, what=f"'{source}' {what}", advice="name a file, relative to the playbook")
    try:
        size, sha256 = hash_file(source)
    except OSError as error:
        raise document.error(*keys, what=f"'{source}' cannot be read: {error.strerror}") from None
    blobs[sha256] = source
    return {"blob": sha256, "size": size}


def _id(step: Step, args: Mapping[str, Any], taken: set[str]) -> str:
    subject = next(args[key] for key in _SUBJECT if key in args)
    words = " ".join(subject) if isinstance(subject, list) else str(subject)
    name = step.name or f"{step.resource} {words if len(words) <= 80 else words[:77] + '...'}"
    if name not in taken:
        return name
    return next(other for other in (f"{name} #{number}" for number in range(2, 10**6)) if other not in taken)
