"""Lets a board build for itself, where only it has the compiler (CUDA): as a unit that a lost link does not end.

The result comes back into the controller's store, so that every board of that kind gets the same bytes. The board's
compiler is known by the board's operating system: what it is, exactly, is in the build's facts.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from boardbench.errors import RigError
from boardbench.inventory import Board
from boardbench.payload import ROOT, hash_file
from boardbench.results import fetch
from boardbench.results.fetch import DoorLike

from . import builder, steps
from .builder import Wanted
from .store import FILES, Built, Store, key_of
from .voice import Voice

SCOPE = "provision"
STATE = "/var/lib/boardbench"
SHORT_S = 60.0
PUSH_S = 1800.0
POLL_S = 3.0
_STEP = re.compile(r"\[(\d+)/(\d+)\]")


def ensure(
    wanted: Wanted, board: Board, system: str, door: DoorLike, store: Store, voice: Voice, *, check: bool
) -> Built:
    """The build, made on the board first when the store does not have it. `system`: the board's operating system.

    A build that a lost link left running is waited for, not begun again. With `check` nothing is begun.
    Errors: RigError for a missing tool, a failed step, a failed build, and the door's own.
    """
    inputs = wanted.inputs(f"{board.kind} {system}")
    key = key_of(inputs)
    if (found := store.find(key)) is not None:
        return found
    if check:
        raise RigError(
            f"{wanted.title} has not been built yet, and --check changes nothing on the board that builds it",
            where=board.name,
            advice="run it without --check, which may take an hour or two once",
        )
    work = _Work(wanted, board, door, voice, f"build-{key[:16]}")

    def produce(folder: Path) -> Mapping[str, object]:
        began = time.monotonic()
        if work.begun():
            voice.say(f"{wanted.title} was begun on {board.name} before: going on with that")
        else:
            voice.say(f"building {wanted.title} on {board.name}; it goes on there if this link is lost")
            work.begin(folder)
        work.wait()
        facts = work.collect(folder, store.log(key))
        return {**facts, "seconds": round(time.monotonic() - began, 1)}

    made_from = {"inputs": inputs, "title": wanted.title, "source": wanted.source.label, "commit": wanted.source.commit}
    return store.make(key, made_from, builder.NEEDS_BYTES, builder.Waiting(wanted.title, voice), produce)


class _Work:
    """One build on one board: pushed as a payload of its own, run as a run, fetched, and gone again."""

    def __init__(self, wanted: Wanted, board: Board, door: DoorLike, voice: Voice, name: str) -> None:
        self._wanted = wanted
        self._board = board.name
        self._door = door
        self._voice = voice
        self._name = name
        self._root = f"{ROOT}/{name}"

    def begun(self) -> bool:
        """Whether the board is at this very build, or has ended it while nobody was there to fetch it."""
        return self._staged().get("phase") in ("started", "finished")

    def begin(self, folder: Path) -> None:
        """Push source and job, check what the board needs, start."""
        with _packed(self._wanted, folder, self._voice) as archive:
            job = self._job()
            contents: dict[str, Path | bytes] = {
                "source.tar.gz": archive,
                "steps.py": Path(steps.__file__),
                "job.json": json.dumps(job, sort_keys=True).encode(),
            }
            self._push(contents)
        prepared = {"run": self._name, "campaign": None, "scope": SCOPE}
        self._door.call("prepare", prepared, deadline_s=SHORT_S)
        argv = ["/usr/bin/env", "python3", "-I", f"{self._root}/steps.py", self._root]
        start = {"run": self._name, "exec": argv, "deadline_s": self._wanted.place.deadline_s}
        self._door.call("start", start, deadline_s=SHORT_S)

    def wait(self) -> None:
        """Until it has ended, telling how far it is."""
        while (state := self._staged()).get("running"):
            if found := _STEP.search(str(state.get("said", ""))):
                self._voice.step(f"{self._wanted.title} on {self._board}", int(found[1]), int(found[2]))
            time.sleep(POLL_S)

    def collect(self, folder: Path, log: Path) -> Mapping[str, object]:
        """Fetch what it made into `folder/files`; the board keeps nothing of it. RigError when it failed."""
        finished = self._door.call("finish", {"run": self._name}, deadline_s=SHORT_S)
        files = fetch.announced(finished.get("files"), self._board)
        place = folder / "fetched"
        wrong = fetch.fetch(self._door, self._name, files, place, board=self._board, deadline_s=PUSH_S)
        if wrong:
            raise RigError(f"{wrong[0]} did not come whole", where=self._board, advice="try again", transient=True)
        for step in (lambda: self._door.call("forget", {"run": self._name}, deadline_s=SHORT_S), self._withdraw):
            step()
        made = place / "workload"
        if not (made / "needs.json").is_file():
            raise self._failure(place, log)
        shutil.move(made / FILES, folder / FILES)
        for path in (folder / FILES).iterdir():
            # The stream that it came in carries no modes.
            path.chmod(0o755 if path.name in self._wanted.recipe.targets else 0o644)
        return {
            "needs": json.loads((made / "needs.json").read_text(encoding="utf-8")),
            "compilers": json.loads((made / "compilers.json").read_text(encoding="utf-8")),
        }

    def _failure(self, place: Path, log: Path) -> RigError:
        parts = [place / "workload" / "build.log", place / "logs" / "workload.log"]
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in parts if path.is_file()]
        log.write_text("\n".join(texts), encoding="utf-8")
        last = [line.strip() for line in texts[-1].splitlines() if line.strip()] if texts else []
        return builder.failure(
            f"{self._wanted.title} on {self._board}", steps.BuildFailed(last[-1] if last else "no message", str(log))
        )

    def _job(self) -> dict[str, Any]:
        place = self._wanted.place
        return {
            "cmake": self._wanted.options(),
            "targets": list(self._wanted.recipe.targets),
            "languages": list(place.languages),
            "jobs": place.jobs or 2,
            "ccache": f"{STATE}/ccache" if "ccache" in place.packages else "",
            "work": f"{STATE}/build-work",
            "needs": list(place.needs),
            "compilers": ["g++"],
        }

    def _staged(self) -> Mapping[str, Any]:
        runs = self._door.call("staged", {}, deadline_s=SHORT_S).get("runs")
        for run in runs if isinstance(runs, list) else []:
            if run.get("run") == self._name:
                return dict(run)
        return {}

    def _push(self, contents: Mapping[str, Path | bytes]) -> None:
        files, blobs = [], {}
        for name, content in contents.items():
            size, sha256 = _hashed(content)
            files.append({"path": name, "blob": sha256, "size": size, "mode": "0644"})
            blobs[sha256] = content
        wanted: list[dict[str, Any]] = []
        if self._wanted.place.packages:
            wanted.append({"id": "packages", "resource": "package", "args": {"names": [*self._wanted.place.packages]}})
        version = key_of({"files": files})
        args = {"name": self._name, "version_sha256": version, "root": self._root, "files": files}
        wanted.append({"id": "source", "resource": "payload", "args": args})
        self._apply(wanted, blobs)

    def _withdraw(self) -> None:
        args = {"name": self._name, "root": self._root, "state": "absent"}
        self._apply([{"id": "source", "resource": "payload", "args": args}], {})

    def _apply(self, wanted: list[dict[str, Any]], blobs: Mapping[str, Path | bytes]) -> None:
        failed: list[str] = []

        def heard(event: dict[str, object]) -> None:
            if event.get("event") == "step" and event.get("state") == "failed":
                failed.append(f"{event.get('id')}: {event.get('message')}")

        wired = [{"when": {}, "line": "build", **step} for step in wanted]
        args = {"scope": SCOPE, "steps": wired, "check": False, "diff": False, "stop_on_failure": True, "settle": True}
        self._door.call("apply", args, deadline_s=PUSH_S, blobs=blobs, on_event=heard)
        if failed:
            raise RigError(f"the board cannot build {self._wanted.title}: {failed[0]}", where=self._board)


@contextmanager
def _packed(wanted: Wanted, folder: Path, voice: Voice) -> Iterator[Path]:
    """The patched source as one archive, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="source-", dir=folder) as place:
        builder.prepare(wanted, Path(place) / "source", voice)
        archive = Path(place) / "source.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=3) as tar:
            for path in sorted((Path(place) / "source").iterdir()):
                tar.add(path, path.name)
        yield archive


def _hashed(content: Path | bytes) -> tuple[int, str]:
    import hashlib

    return (len(content), hashlib.sha256(content).hexdigest()) if isinstance(content, bytes) else hash_file(content)
