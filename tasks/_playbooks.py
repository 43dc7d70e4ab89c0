"""What `provision` and `teardown` share: their options, and how a playbook is run and shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tasks._verb import emit, note

DEFAULT = "playbooks/provision.yml"
HELP = {
    "playbook": "playbook file",
    "tags": "only steps with one of these tags, joined by commas",
    "skip_tags": "no steps with one of these tags",
    "source": "a tarball or checkout that payloads are built from, instead of the source that they pin",
    "check": "say what would change; touch nothing",
    "diff": "show the differences of files",
}


@dataclass(frozen=True)
class Options:
    """What a user says about how a playbook is run; `tags` and `skip_tags` as typed.

    `source`: what payloads are built from, instead of the source that they pin.
    """

    check: bool = False
    diff: bool = False
    tags: str = ""
    json: bool = False
    quiet: bool = False
    skip_tags: str = ""
    source: str = ""


def run_playbook(inventory: str, limit: str, playbook: str, options: Options, *, put_back: bool = False) -> int:
    """Find playbook and boards, apply the one to the others; the exit code. `put_back`: first what the dead left."""
    from tasks._boards import open_rig
    from tasks._files import project_file

    path = project_file(playbook)
    rig = open_rig(inventory, limit)
    if put_back:
        put_back_first(rig, check=options.check)
    return apply_to(rig, path, options)


def apply_to(rig: Any, path: Any, options: Options) -> int:
    """Apply one playbook to the chosen boards, print what happens and the recap; returns the exit code.

    A board that is held by a controller that is proved to be dead is taken over, and it is said. What payloads need and
    nobody has built yet is built first.
    """
    from boardbench.locations import certificates_dir
    from boardbench.matrix.takeover import freeing
    from boardbench.playbook import apply, load
    from boardbench.playbook.certificates import certified
    from boardbench.report.steps import StepPrinter
    from tasks._builds import completer

    playbook = load.load(path, rig.inventory)
    printer = StepPrinter(check=options.check, diff=options.diff, quiet=options.quiet)
    tags, skip_tags = _words(options.tags) or None, _words(options.skip_tags)
    folder = certificates_dir(rig.inventory.path)
    with certified(playbook, rig.boards, folder, note, check=options.check, tags=tags, skip_tags=skip_tags) as boards:
        outcome = apply.run(
            rig.inventory,
            boards,
            playbook,
            check=options.check,
            diff=options.diff,
            tags=tags,
            skip_tags=skip_tags,
            open_door=freeing(_opener(rig), note, check=options.check),
            on_event=(lambda board, event: emit({"board": board, **event})) if options.json else printer.event,
            completer=completer(rig, source=options.source, check=options.check),
        )
    if options.json:
        emit(outcome.as_json())
    else:
        printer.recap(outcome)
    return outcome.exit_code


def bringing(inventory: Any) -> Any:
    """Says what brings a payload to a board (`preflight.Bringing`), by the tags of the default playbook."""
    from boardbench.errors import InputError
    from boardbench.matrix import preflight
    from boardbench.playbook import bringing as steps
    from boardbench.playbook import load
    from tasks._files import project_file

    def say(payload: str, board: Any) -> str:
        try:
            return steps.advice(load.load(project_file(DEFAULT), inventory), payload, board)
        except InputError:
            # The playbook itself is at fault. Its command says where; here it is about the board.
            return preflight.by_provision(payload, board)

    return say


def put_back_first(rig: Any, *, check: bool) -> None:
    """What a dead campaign left on the boards is put back, and said, before the rest is.

    Raises RigError for a board that a campaign holds. Any other trouble of a board is told by the playbook itself.
    """
    from boardbench.errors import DeadlineError, UnreachableError
    from boardbench.matrix.leftovers import put_back

    failed = put_back(rig.boards, _opener(rig), note, check=check)
    for error in failed.values():
        # Held: it can be tried again later. Lost boards can too, and cost only themselves.
        if error.transient and not isinstance(error, UnreachableError | DeadlineError):
            raise error


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _opener(rig: Any) -> Any:
    from boardbench.board import Door

    return lambda board: Door.open(board, rig.inventory.known_hosts, stay=True)
