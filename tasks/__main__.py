"""Runs `inv`: Invoke with our collection, a list that reads like a manual, and exit codes that mean something."""

from __future__ import annotations

import difflib
import os
import sys
from typing import Any

from invoke import Collection, Program
from invoke.exceptions import Exit, ParseError, UnexpectedExit

from boardbench import __version__
from boardbench.errors import ExitCode
from boardbench.secretwords import REGISTRY, Veil
from tasks import namespace

# Invoke cannot make a positional argument optional: for these verbs a bare first word stands for the named option.
OPTIONAL_WORD = {"audit": "--path", "collect": "--campaign", "report": "--campaign", "validate": "--path"}
# Of these every bare word does.
ANY_WORDS = {"audit"}

SECTIONS = (
    ("The whole way", ("demo",)),
    ("Step by step", ("provision", "plan", "bench", "collect", "validate", "report", "teardown")),
    ("Judging", ("import", "compare", "ledger", "advise")),
    ("Looking", ("doctor", "status", "lease", "audit", "tracer")),
    ("Boards", ("boards", "boards.trust", "certs")),
    ("Virtual boards", ("virtual.up", "virtual.status", "virtual.down", "virtual.fit")),
    ("Working on boardbench", ("test",)),
)

MANUAL = """\
inv {version}: provision boards, run benchmark matrices on them, keep measurements that can be trusted.

Usage: ./inv VERB [OPTIONS]        ./inv VERB --help        ./inv --list
"""

NOTES = """\
Every verb takes --json (one document, or JSON lines, on stdout; the rest goes to stderr).
The default inventory, inventory/virtual.yml, is four virtual boards; a verb that needs them starts them and says so.
For real boards: copy inventory/lab.example.yml and pass it with -i (docs/hardware.md tells the whole way).
Exit codes: 0 fine, 1 worked but an outcome is not good, 2 bad input, 3 rig, 4 workload, 70 our bug, 130 interrupted.
"""


class BenchProgram(Program):
    """Invoke's program with a grouped list, optional words, and one sentence for a word that it does not know."""

    def normalize_argv(self, argv: list[str] | None) -> None:
        super().normalize_argv(argv)
        words = list(self.argv)
        for at, word in enumerate(words[1:], start=1):
            following = at + 1
            while word in OPTIONAL_WORD and following < len(words) and not words[following].startswith("-"):
                words.insert(following, OPTIONAL_WORD[word])
                following += 2 if word in ANY_WORDS else len(words)
            if following > at + 1:
                break
        self.argv = words

    def list_flat(self) -> None:
        help_of = {self.collection.transform(name): _first_line(task) for name, task in _tasks(self.collection)}
        print(MANUAL.format(version=__version__))
        for title, names in SECTIONS:
            print(f"{title}:")
            for name in names:
                print(f"  {name:<16}{help_of.pop(name)}")
            print()
        for name, text in help_of.items():
            print(f"  {name:<16}{text}")
        print(NOTES, end="")

    def no_tasks_given(self) -> None:
        self.list_flat()
        raise Exit(code=ExitCode.OK)


def _tasks(collection: Collection) -> list[tuple[str, Any]]:
    found = list(collection.tasks.items())
    for prefix, inner in collection.collections.items():
        for name, task in inner.tasks.items():
            found.append((prefix if name == inner.default else f"{prefix}.{name}", task))
    return found


def _first_line(task: Any) -> str:
    return (task.__doc__ or "").strip().split("\n", 1)[0]


def _explain(error: ParseError) -> str:
    message = str(error)
    word = message.split("'")[1] if message.count("'") >= 2 else ""
    names = [name for _, group in SECTIONS for name in group]
    if message.startswith("No idea what") and word.startswith("-"):
        context = getattr(error, "context", None)
        flags = list(context.flags) if context is not None else []
        near = difflib.get_close_matches(word, flags, n=1, cutoff=0.5)
        verb = f" of '{context.name}'" if context is not None and context.name else ""
        return f"no option '{word}'{verb}; " + (f"did you mean '{near[0]}'?" if near else "'--help' lists the options")
    if message.startswith("No idea what"):
        near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
        return f"no verb '{word}'; " + (f"did you mean '{near[0]}'?" if near else "'./inv --list' shows all")
    return message


def veiled() -> None:
    """From here on no known secret gets to the terminal or into a pipe."""
    REGISTRY.learn_environment(os.environ)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, Veil):
            setattr(sys, name, Veil(stream))


def main() -> int:
    """Run the command line; returns the exit code."""
    veiled()
    program = BenchProgram(name="boardbench", binary="inv", version=__version__, namespace=namespace)
    try:
        program.create_config()
        program.parse_core(None)
        program.parse_collection()
        program.parse_tasks()
        program.parse_cleanup()
        program.update_config()
        program.execute()
    except ParseError as error:
        print(f"inv: {_explain(error)}", file=sys.stderr)
        return ExitCode.INPUT
    except Exit as exit_:
        if exit_.message:
            print(exit_.message, file=sys.stderr)
        return exit_.code
    except UnexpectedExit as error:
        return error.result.exited or ExitCode.BUG
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`inv ... | head`): not an error of the command.
        sys.stderr.close()
        return ExitCode.OK
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
