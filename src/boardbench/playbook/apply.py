"""Makes boards match a playbook, all at once, and keeps every step's result, also of a board that was lost midway."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from boardbench.builds.completing import Completer, OpenDoor
from boardbench.crew import each
from boardbench.errors import BenchError, BugError
from boardbench.inventory import Board, Inventory
from boardbench.results.fetch import DoorLike

from .compile import PROVISION, BoardProgram, Request, chosen, compile_playbook, incomplete
from .load import Playbook
from .recap import STATES, BoardOutcome, Outcome, StepResult

Event = dict[str, object]
# Restoring and listing read and write some hundred files at most.
SCOPES_DEADLINE_S = 60.0
OnEvent = Callable[[str, Event], None]


def run(
    inventory: Inventory,
    boards: Sequence[Board],
    playbook: Playbook,
    *,
    check: bool = False,
    diff: bool = False,
    tags: Collection[str] | None = None,
    skip_tags: Collection[str] = (),
    open_door: OpenDoor,
    on_event: OnEvent | None = None,
    at_once: int = 16,
    completer: Completer | None = None,
) -> Outcome:
    """Apply a playbook to boards; with `check` nothing is touched and `changed` means "would change".

    Raises `InputError` before the first board is changed; after that each board's error is only its own and is in
    the outcome. `completer` builds or fetches what payloads lack: what cannot be had is everybody's error, and is
    raised.
    `on_event(board, event)` is called from several threads.
    """
    for board in boards:
        if board.name not in inventory.boards:
            raise BugError(f"board '{board.name}' is not in {inventory.path}")
    lost: dict[str, BenchError] = {}
    if completer is not None:
        # What a board is decides what is built for it.
        lost = completer.meet(
            [board for board in boards if incomplete(playbook, chosen(playbook, board, tags, skip_tags))]
        )
    met = [board for board in boards if board.name not in lost]
    compiled = compile_playbook(
        playbook, met, tags=tags, skip_tags=skip_tags, check=check, diff=diff,
        complete=completer.complete if completer is not None else None,
    )  # fmt: skip
    programs = {program.board.name: program for program in compiled}
    workers = {
        name: _Worker(program, playbook.deadline_s, check, open_door, on_event) for name, program in programs.items()
    }
    ended = each(met, lambda board: workers[board.name].work(), at_once=at_once)
    outcomes = {}
    for board in boards:
        if board.name in lost:
            outcomes[board.name] = BoardOutcome(board.name, (), lost[board.name])
            continue
        worker, result = workers[board.name], ended[board.name]
        error = result if isinstance(result, BenchError) else worker.error
        outcomes[board.name] = BoardOutcome(board.name, tuple(worker.steps), error)
    return Outcome(outcomes, check)


def all_built(playbook: Playbook, boards: Sequence[Board], completer: Completer) -> bool:
    """Whether all programs that payloads of these boards need have been built before. A board's error is raised."""
    needing = [(board, incomplete(playbook, chosen(playbook, board))) for board in boards]
    lost = completer.meet([board for board, payloads in needing if payloads])
    if lost:
        raise next(iter(lost.values()))
    return all(completer.ready(payload, board) for board, payloads in needing for payload in payloads)


class _Worker:
    """Carries one board through its program. Results gather here, so that a lost link loses none of them."""

    def __init__(
        self, program: BoardProgram, deadline_s: float, check: bool, open_door: OpenDoor, on_event: OnEvent | None
    ) -> None:
        self.steps: list[StepResult] = []
        self.error: BenchError | None = None
        self._program = program
        self._deadline_s = deadline_s
        self._check = check
        self._open_door = open_door
        self._on_event = on_event

    def work(self) -> None:
        """All requests in order; after a failure the rest is skipped, because it builds on what failed."""
        if not self._program.requests:
            return
        try:
            with self._open_door(self._program.board) as door:
                for request in self._program.requests:
                    if any(step.state == "failed" for step in self.steps):
                        self._skip(request)
                    else:
                        self._make(door, request)
        except BenchError as error:
            self.error = error

    def _make(self, door: DoorLike, request: Request) -> None:
        if request.verb == "apply":
            self._apply(door, request)
        elif request.each_campaign:
            scopes = [scope["scope"] for scope in self._scopes(door) if scope["scope"] != PROVISION]
            for scope in scopes:
                self._restore(door, scope)
            if not scopes:
                self._note(StepResult("restore campaigns", "restore", "ok", message="nothing to put back"))
        elif request.verb == "restore":
            self._restore(door, request.args["scope"])
        elif request.verb == "purge":
            self._purge(door)
        else:
            raise BugError(f"a playbook cannot ask for '{request.verb}'")

    def _apply(self, door: DoorLike, request: Request) -> None:
        before = len(self.steps)

        def heard(event: Event) -> None:
            if event.get("event") == "step":
                self.steps.append(_step_result(event))
            self._tell(event)

        # In the same call: a held board is refused, and what a dead campaign left on it is put back.
        args = {**request.args, "settle": True}
        value = door.call("apply", args, deadline_s=self._deadline_s, blobs=request.blobs, on_event=heard)
        told = self.steps[before:]
        recap = value.get("recap")
        counted = {state: sum(step.state == state for step in told) for state in STATES}
        # Two accounts of one thing: if they differ, one of them is wrong, and neither may be believed.
        if not isinstance(recap, dict) or any(recap.get(state) != counted[state] for state in ("changed", "failed")):
            raise BugError(
                f"the board's recap {recap} is not what its steps said: {counted}", where=self._program.board.name
            )
        for step in request.steps[len(told) :]:
            self._note(StepResult(step["id"], step["resource"], "skipped", message="not run: an earlier step failed"))

    def _scopes(self, door: DoorLike) -> list[dict[str, Any]]:
        value = door.call("scopes", {}, deadline_s=SCOPES_DEADLINE_S)
        scopes = value["scopes"]
        if not isinstance(scopes, list):
            raise BugError(f"the board answered scopes {scopes!r}", where=self._program.board.name)
        return scopes

    def _restore(self, door: DoorLike, scope: str) -> None:
        if self._check:
            left = sum(entry["changes"] for entry in self._scopes(door) if entry["scope"] == scope)
            message = f"would put back {left} things" if left else "nothing to put back"
            self._note(StepResult(f"restore {scope}", "restore", "changed" if left else "ok", message=message))
            return
        value = door.call("restore", {"scope": scope}, deadline_s=self._deadline_s, on_event=self._tell)
        restored = value["restored"]
        if not isinstance(restored, list):
            raise BugError(f"the board answered restored {restored!r}", where=self._program.board.name)
        for entry in restored:
            self._note(_restored(scope, entry))
        if not restored:
            self._note(StepResult(f"restore {scope}", "restore", "ok", message="nothing to put back"))

    def _purge(self, door: DoorLike) -> None:
        if self._check:
            message = "would remove all that boardbench keeps on the board"
            self._note(StepResult("purge", "purge", "changed", message=message))
            return
        value = door.call("purge", {}, deadline_s=self._deadline_s, on_event=self._tell)
        removed = value["removed"]
        if not isinstance(removed, list):
            raise BugError(f"the board answered removed {removed!r}", where=self._program.board.name)
        changes = [{"what": path, "before": "present", "after": "absent"} for path in removed]
        self._note(StepResult("purge", "purge", "changed" if removed else "ok", changes))

    def _skip(self, request: Request) -> None:
        message = "not run: an earlier step failed"
        for step in request.steps:
            self._note(StepResult(step["id"], step["resource"], "skipped", message=message))
        if not request.steps:
            self._note(StepResult(request.verb, request.verb, "skipped", message=message))

    def _note(self, step: StepResult) -> None:
        self.steps.append(step)
        self._tell(step.as_event())

    def _tell(self, event: Event) -> None:
        if self._on_event is not None:
            self._on_event(self._program.board.name, event)


def _step_result(event: Mapping[str, Any]) -> StepResult:
    state = event.get("state")
    if state not in STATES:
        raise BugError(f"a step of the board ended as {state!r}")
    return StepResult(
        id=str(event.get("id", "")),
        resource=str(event.get("resource", "")),
        state=str(state),
        changes=tuple(event.get("changes") or ()),
        diff=str(event.get("diff") or ""),
        message=str(event.get("message") or ""),
    )


def _restored(scope: str, entry: Mapping[str, Any]) -> StepResult:
    before, after = entry.get("before"), entry.get("after")
    good = entry.get("ok") is True
    state = "failed" if not good else "ok" if before == after else "changed"
    changes = [] if state == "ok" else [{"what": entry.get("what"), "before": before, "after": after}]
    return StepResult(
        f"restore {scope}: {entry.get('what')}", "restore", state, changes, message=str(entry.get("why") or "")
    )
