"""The exclusive hold of this board by one campaign: a file under a lock, with an owner, a heartbeat and an expiry.

The expiry is in boot time, so neither a clock that jumps nor a reboot can keep a dead campaign's hold alive.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from typing import Any, Iterator

from . import stamps
from .failures import BAD_INPUT, RIG, Failure
from .places import Places
from .wire import Call

ACTIONS = ("take", "renew", "release", "end", "show")
MAX_TTL_S = 7 * 86400.0
# How many earlier holds are remembered. Kept over reboots: who took a board away from whom must stay known.
HISTORY_LINES = 50
SHOWN_LINES = 10


def lease(args: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb: `{"held", "lease", "note"}`. Whoever may not take, renew or release gets a Failure `rig`.

    `take` adds `taken_from` (a lease or null), `show` adds `left_s` and `history`, the last holds that ended. `end` is
    for whoever has proved that the controller of exactly the hold `of` is dead: it adds `stopped`, the runs of that
    campaign whose load still ran and was stopped.
    """
    action = args.get("action")
    if action not in ACTIONS:
        raise Failure(BAD_INPUT, f"action is {action!r:.80}", "lease", "one of " + ", ".join(ACTIONS))
    store = Store(call.places)
    with store.locked():
        if action == "show":
            return store.show()
        if action == "end":
            return _end(store, args, call)
        who: dict[str, Any] = {name: _text(args, name) for name in ("owner", "host", "campaign")}
        who["process"] = _process(args.get("process"))
        if action == "release":
            return store.release(who)
        ttl_s = args.get("ttl_s")
        if isinstance(ttl_s, bool) or not isinstance(ttl_s, (int, float)) or not 0 < ttl_s <= MAX_TTL_S:
            raise Failure(BAD_INPUT, f"ttl_s is {ttl_s!r:.80}", "lease", "seconds above 0, at most a week")
        if action == "renew":
            return store.renew(who, float(ttl_s))
        return store.take(who, float(ttl_s), str(args.get("steal_why") or ""))


def hold(value: Any, call: Call) -> None:
    """Before any other verb that was sent with a `lease`: one heartbeat, so that it needs no call of its own.

    A hold that ended by itself (a reboot) is taken anew. Failure `rig` when somebody else holds the board by now.
    """
    if not isinstance(value, dict):
        raise Failure(BAD_INPUT, f"lease is {value!r:.80}", "lease")
    store = Store(call.places)
    with store.locked():
        found, _ = store.current()
        action = "take" if found is None else "renew"
    lease({**value, "action": action}, call)


def _text(args: dict[str, Any], name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Failure(BAD_INPUT, f"{name} is {value!r:.80}", "lease", "say who takes the board")
    return value


def _process(value: Any) -> dict[str, Any] | None:
    """Which process renews the hold, as it says of itself: kept word for word, for others on its machine."""
    if value is None:
        return None
    good = isinstance(value, dict) and 0 < len(value) <= 8
    if not good or not all(isinstance(part, (str, int)) and len(str(part)) <= 100 for part in value.values()):
        raise Failure(BAD_INPUT, f"process is {value!r:.80}", "lease", "pid, start and namespaces of the holder")
    return dict(value)


def _end(store: Store, args: dict[str, Any], call: Call) -> dict[str, Any]:
    """Under the lock. The loads are stopped first: one that runs on while the board is changed would look valid."""
    of = args.get("of")
    if not isinstance(of, dict) or not isinstance(of.get("process"), dict):
        raise Failure(BAD_INPUT, f"of is {of!r:.80}", "lease", "the hold, with the process that is dead")
    why, by = _text(args, "why"), _text(args, "by")
    found, note = store.current()
    if found is None:
        return {"held": False, "lease": None, "note": note, "stopped": []}
    if any(found.get(name) != of.get(name) for name in ("owner", "host", "campaign", "process")):
        raise Failure(RIG, f"the board is now held by {describe(found)}", "lease", "wait for it", transient=True)
    stopped = _stop_loads(str(found["campaign"]), call)
    return dict(store.end(f"{why}; ended by {by}"), stopped=stopped)


def _stop_loads(campaign: str, call: Call) -> list[str]:
    from . import runs, staged

    found = staged.staged({}, call)["runs"]
    running = [str(run["run"]) for run in found if run["running"] and run["campaign"] == campaign]
    for name in running:
        call.phase("lease", f"stopping the load of {name}")
        runs.finish({"run": name}, call)
    return running


class Store:
    """The lease file of one board. Use it inside `locked()`."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._path = os.path.join(places.run, "lease.json")
        self._history_path = os.path.join(places.state, "leases.jsonl")
        self._boot_id = stamps.boot_id(places)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Two calls at once: one waits for the other. The lock ends with the process that holds it."""
        os.makedirs(self._places.run, mode=0o755, exist_ok=True)
        fd = os.open(os.path.join(self._places.run, "lease.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def current(self) -> tuple[dict[str, Any] | None, str]:
        """The lease that holds now, or None and why the board is free."""
        try:
            with open(self._path, encoding="utf-8") as file:
                found = json.load(file)
            expires, boot_id = float(found["expires_boottime_s"]), str(found["boot_id"])
            _ = (found["owner"], found["host"], found["campaign"])
        except FileNotFoundError:
            return None, "nobody holds it"
        except (ValueError, KeyError, TypeError):
            # Written whole by rename, so a torn file is not a lease that was ever given.
            return None, "the lease file was not readable as a lease and does not count"
        if boot_id != self._boot_id:
            return None, f"the lease of {describe(found)} is from before a reboot"
        if stamps.boottime_s() >= expires:
            return None, f"the lease of {describe(found)} has expired"
        return found, ""

    def show(self) -> dict[str, Any]:
        """Who holds the board, for how many seconds more, and who held it before, oldest first."""
        found, note = self.current()
        return {
            "held": found is not None,
            "lease": found,
            "note": note,
            "left_s": None if found is None else round(self.left_s(found), 1),
            "history": self._history()[-SHOWN_LINES:],
        }

    def take(self, who: dict[str, Any], ttl_s: float, steal_why: str) -> dict[str, Any]:
        """Takes a free board, or one's own again; with a reason also somebody else's, which is recorded."""
        found, note = self.current()
        taken_from = None
        if found is not None and not _same(found, who):
            if not steal_why.strip():
                raise Failure(
                    RIG,
                    f"the board is held by {describe(found)}, {self.left_s(found):.0f} s left",
                    "lease",
                    "wait for it; if that campaign is dead: ./inv bench ... --steal --why REASON",
                    transient=True,
                )
            note = f"taken away from {describe(found)}: {steal_why}"
            taken_from, found = found, None
        if found is None:
            # Before the new lease, so that no hold is ever forgotten: said twice is better than not at all.
            self._remember_last(f"{note}, by {describe(who)}" if taken_from else note)
        value = {
            **who,
            "taken_unix_s": found["taken_unix_s"] if found else stamps.now()["wall_unix_s"],
            "expires_boottime_s": stamps.boottime_s() + ttl_s,
            "boot_id": self._boot_id,
            "heartbeats": int(found["heartbeats"]) + 1 if found else 0,
            "why": note,
        }
        return dict(self._keep(value), taken_from=taken_from)

    def renew(self, who: dict[str, Any], ttl_s: float) -> dict[str, Any]:
        """One heartbeat. Only the holder can; a lease that has ended cannot be renewed, because work went unguarded."""
        found, note = self.current()
        if found is None:
            raise Failure(RIG, f"there is no lease to renew: {note}", "lease", "take the board again")
        if not _same(found, who):
            raise Failure(RIG, f"the board is now held by {describe(found)}", "lease", "stop this campaign")
        heartbeats = int(found.get("heartbeats", 0)) + 1
        # A campaign that is gone on with is renewed by another process than the one that took the board.
        beat = {"expires_boottime_s": stamps.boottime_s() + ttl_s, "heartbeats": heartbeats, "process": who["process"]}
        return self._keep({**found, **beat})

    def release(self, who: dict[str, Any]) -> dict[str, Any]:
        """Gives the board back. Not held is a success; held by somebody else is not ours to release."""
        found, note = self.current()
        if found is not None and not _same(found, who):
            raise Failure(RIG, f"the board is held by {describe(found)}", "lease", "only the holder releases it")
        return self.end("given back" if found is not None else note, note)

    def end(self, how: str, note: str = "") -> dict[str, Any]:
        """Nobody holds the board any more; the history keeps `how`."""
        self._remember_last(how)
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
        return {"held": False, "lease": None, "note": note}

    def left_s(self, found: dict[str, Any]) -> float:
        """For how many seconds this hold lasts without another heartbeat."""
        return max(0.0, float(found["expires_boottime_s"]) - stamps.boottime_s())

    def _history(self) -> list[dict[str, Any]]:
        found = []
        try:
            with open(self._history_path, "rb") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return []
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # cut off by a power loss; the others still tell
            if isinstance(entry, dict):
                found.append(entry)
        return found

    def _remember_last(self, how: str) -> None:
        """Adds the hold in the lease file, if there is one, to the history: it ends now, `how` says why."""
        try:
            with open(self._path, encoding="utf-8") as file:
                last = json.load(file)
            entry = {name: last[name] for name in ("owner", "host", "campaign", "taken_unix_s", "heartbeats", "why")}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return
        history = [*self._history(), dict(entry, ended_unix_s=stamps.now()["wall_unix_s"], how=how)]
        os.makedirs(os.path.dirname(self._history_path), mode=0o755, exist_ok=True)
        partial = self._history_path + ".partial"
        with open(partial, "w", encoding="utf-8") as file:
            for entry in history[-HISTORY_LINES:]:
                file.write(json.dumps(entry, allow_nan=False, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, self._history_path)

    def _keep(self, value: dict[str, Any]) -> dict[str, Any]:
        partial = self._path + ".partial"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(value, file, allow_nan=False, sort_keys=True)
            file.write("\n")
        os.rename(partial, self._path)
        return {"held": True, "lease": value, "note": value.get("why", "")}


def describe(found: dict[str, Any]) -> str:
    """One phrase for messages: who, from where, for what."""
    return f"{found.get('owner')}@{found.get('host')} (campaign {found.get('campaign')})"


def _same(found: dict[str, Any], who: dict[str, Any]) -> bool:
    return all(found.get(name) == who[name] for name in ("owner", "host", "campaign"))
