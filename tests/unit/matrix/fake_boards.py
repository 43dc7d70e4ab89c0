"""Boards in memory that answer the wire's verbs as real ones do, with files they make themselves.

What goes wrong is scripted: `board.fail(verb, error, times=1)` raises, `board.on(verb, hook)` does anything else.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from boardbench.errors import RigError
from boardbench.inventory import Access, Board, Cooling, Identity, Inventory

TIME_SCALE = 93000.0  # 1860 s of board time are 0.02 s here
Hook = Callable[["FakeBoard", Mapping[str, Any]], None]


def stamp() -> dict[str, float]:
    now_s = time.monotonic()
    return {"wall_unix_s": time.time(), "monotonic_s": now_s, "boottime_s": now_s + 5.0}


class FakeBoard:
    """State of one board. `log` holds every verb that came, in order, with its arguments."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.boot_id = f"boot-of-{name}"
        self.hostname = name
        self.virtual: dict[str, Any] | None = {"kind": "bwrap", "time_scale": TIME_SCALE, "sysfs": "plain"}
        self.fan = "1"
        self.governor = "ondemand"
        self.lease: dict[str, Any] | None = None
        self.noted: dict[str, dict[str, str]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.open_doors = 0
        self.exit: dict[str, Any] = {"code": 0}
        self.cool_ok = True
        self.change_files: Callable[[dict[str, bytes]], None] = lambda _: None
        self.change_look: Callable[[dict[str, Any]], None] = lambda _: None
        self.free_bytes = 10**9
        self.installed: set[str] | None = None  # hashes of files; None: whatever is asked for
        self.lacking: set[str] = set()  # paths of files that are not there, whatever they should hold
        self.corrupt = 0  # how many fetches send a flipped byte
        self.extra_members: list[tarfile.TarInfo] = []
        self._hooks: dict[str, list[Hook]] = {}

    def on(self, verb: str, hook: Hook) -> None:
        self._hooks.setdefault(verb, []).append(hook)

    def fail(self, verb: str, error: Exception, times: int = 1) -> None:
        left = [times]

        def raise_it(*_: object) -> None:
            if left[0] > 0:
                left[0] -= 1
                raise error

        self.on(verb, raise_it)

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.log]

    def answer(self, verb: str, args: Mapping[str, Any], on_data: Callable[[str, bytes], None] | None) -> Any:
        if "lease" in args and verb != "lease":  # refused before anything is done
            self.verb_lease({"action": "take" if self.lease is None else "renew", **args["lease"]})
        self.log.append((verb, json.loads(json.dumps(args))))
        for hook in self._hooks.get(verb, []):
            hook(self, args)
        method = getattr(self, f"verb_{verb.replace('-', '_')}")
        return method(args, on_data) if verb == "fetch" else method(args)

    def verb_facts(self, args: Mapping[str, Any]) -> Any:
        celsius = 41.5
        return {
            "facts": {
                "hostname": self.hostname, "machine_id": f"id-{self.name}", "serial": None, "boot_id": self.boot_id,
                "model": None, "compatible": [], "os": "Test", "kernel": "6.1", "arch": "aarch64", "python": "3.12.3",
                "cpu_count": 8, "memory_total_bytes": 4_000_000_000, "memory_available_bytes": {"missing": "no"},
                "uptime_s": 12.5, "clock": stamp(),
                "disks": [self.disk()],
                "service_manager": "systemctl-replacement",
                "thermal": [{"zone": "thermal_zone0", "type": "soc-thermal", "celsius": celsius}],
                "cpu_policies": [], "devfreq": [], "input_volts": 5.2, "fans": [], "power_rails": [], "nvpmodel": None,
                "links": [], "virtual": self.virtual,
            }
        }  # fmt: skip

    def verb_look(self, args: Mapping[str, Any]) -> Any:
        look = {
            "board": {
                "hostname": self.hostname, "machine_id": f"id-{self.name}", "serial": None, "boot_id": self.boot_id,
            },
            "image": {
                "kernel": "6.1",
                **{name: {"missing": "no"} for name in ("rom_version", "l4t_release", "bootloader")},
            },
            "runtime": {"python": "3.12.3"} if args["hashes"] else None,
            "payloads": {"burn": "1" * 64} if args["hashes"] else None,
            "cpu_policies": [], "thermal": [{"zone": "thermal_zone0", "type": "soc-thermal", "celsius": 41.5}],
            "input_volts": 5.2, "links": [], "disk": {**self.disk(), "probe": {"ok": True, "why": ""}},
            "drop_caches": {"ok": True, "why": ""}, "strays": [],
            "load": {
                "cpu_busy_share": 0.01, "cpu_count": 8, "load_average": 0.1, "processes": [], "registered": [],
                "sample_s": 0.5,
            },
            "virtual": self.virtual,
            "clock": {"stamp": stamp(), "offset_s": 0.001, "error_s": 0.002, "round_trips_s": [0.004]},
        }  # fmt: skip
        self.change_look(look)
        return {"look": look}

    def disk(self) -> dict[str, Any]:
        return {"path": "/var/lib/boardbench", "free_bytes": self.free_bytes, "total_bytes": 10**10, "read_only": False}

    def verb_lease(self, args: Mapping[str, Any]) -> Any:
        action = args["action"]
        ours = self.lease is not None and self.lease["campaign"] == args.get("campaign")
        if action == "show":
            return {"held": self.lease is not None, "lease": self.lease}
        if action in ("take", "renew"):
            if self.lease is not None and not ours:
                raise RigError(f"the board is held by {self.lease['owner']}", where=self.name, transient=True)
            if self.lease is None and action == "renew":
                raise RigError("there is no lease to renew", where=self.name)
            self.lease = {name: args.get(name) for name in ("owner", "host", "campaign", "process")}
            return {"held": True, "lease": self.lease}
        if action == "end":
            assert self.lease == args["of"]
            self.lease = None
            return {"held": False, "lease": None, "stopped": []}
        if self.lease is not None and not ours:
            raise RigError(f"the board is held by {self.lease['owner']}", where=self.name)
        self.lease = None
        return {"held": False, "lease": None}

    def set(self, scope: str, what: str, value: str) -> None:
        self.noted.setdefault(scope, {}).setdefault(what, getattr(self, what))
        setattr(self, what, value)

    def holds(self, step: Mapping[str, Any]) -> bool:
        if step["resource"] == "file":
            if step["args"]["path"] in self.lacking:
                return False
            return self.installed is None or step["args"].get("blob") in {None, *self.installed}
        return bool(step["args"]["value"] == self.fan)

    def verb_apply(self, args: Mapping[str, Any]) -> Any:
        assert args["check"] is True
        wrong = [step for step in args["steps"] if not self.holds(step)]
        return {"recap": {"ok": len(args["steps"]) - len(wrong), "changed": len(wrong), "skipped": 0, "failed": 0}}

    def verb_prepare(self, args: Mapping[str, Any]) -> Any:
        for step in args["settings"]:
            if step["resource"] == "governor":
                self.set(args["scope"], "governor", step["args"]["governor"])
            elif step["args"]["path"] == "/run/boardbench-virtual/fan":
                self.set(args["scope"], "fan", step["args"]["value"])
        if args["run"] in self.runs:
            raise RigError("this run was prepared before", where=self.name)
        why = "" if self.cool_ok else "soc-thermal is at 61.0 degC"
        gates: list[dict[str, Any]] = [
            {"gate": "strays", "ok": True, "saw": {"found": []}, "why": ""},
            {"gate": "cool", "ok": self.cool_ok, "saw": {"last_celsius": 45.0 if self.cool_ok else 61.0}, "why": why},
            {"gate": "logger", "ok": True, "saw": {"rows": 3}, "why": ""},
        ]
        self.runs[args["run"]] = {
            "phase": "prepared", "boot_id": self.boot_id, "period_s": args["logger"]["period_s"], "fan": self.fan,
        }  # fmt: skip
        return {"evidence": gates, "ready": self.cool_ok}

    def verb_start(self, args: Mapping[str, Any]) -> Any:
        argv = args["exec"]
        run = self.runs[args["run"]]
        duration_s = float(argv[argv.index("--duration-s") + 1])
        interval_s = float(argv[argv.index("--interval-s") + 1])
        began = stamp()
        run |= {"phase": "started", "began": began, "duration_s": duration_s, "interval_s": interval_s}
        return {"unit": f"boardbench-run-{args['run']}", "pid": 4711, "started": began, "boot_id": self.boot_id}

    def verb_staged(self, args: Mapping[str, Any]) -> Any:
        return {
            "runs": [
                {
                    "run": name, "campaign": None, "phase": run["phase"], "running": False,
                    "start_answer": {"started": run["began"], "boot_id": run["boot_id"]} if "began" in run else None,
                }
                for name, run in sorted(self.runs.items())
            ]
        }  # fmt: skip

    def verb_watch(self, args: Mapping[str, Any]) -> Any:
        if "began" not in self.runs[args["run"]]:
            raise RigError("the run has not started", where=self.name)
        return {"ended": True, "exit": self.exit, "boot_id": self.boot_id}

    def verb_finish(self, args: Mapping[str, Any]) -> Any:
        run = self.runs.get(args["run"])
        if run is None:
            raise RigError("the run was not prepared on this board", where=self.name)
        if "files" not in run:
            run["phase"] = "finished"
            run["files"] = self.make_files(run) if "began" in run else {}
            self.change_files(run["files"])
        same = run["boot_id"] == self.boot_id
        evidence = [
            {"gate": "boot-id", "ok": same, "saw": {}, "why": "" if same else "the board rebooted"},
            {"gate": "load", "ok": self.exit == {"code": 0}, "saw": {"exit": self.exit}, "why": "see exit"},
            {"gate": "load-runs", "ok": True, "saw": {"cpu_used_s": 1.0}, "why": ""},
            {"gate": "guard", "ok": True, "saw": {"hottest_celsius": 80.0}, "why": ""},
        ]
        listed = [
            {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(run["files"].items())
        ]
        return {"evidence": evidence, "files": listed}

    def verb_fetch(self, args: Mapping[str, Any], on_data: Callable[[str, bytes], None]) -> Any:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as tar:
            for info in self.extra_members:
                tar.addfile(info)
            for name, data in sorted(self.runs[args["run"]]["files"].items()):
                if self.corrupt > 0 and name == "thermal.csv":
                    self.corrupt -= 1
                    data = data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        data = stream.getvalue()
        for start in range(0, len(data), 4096):
            on_data("tar", data[start : start + 4096])
        return {"bytes": len(data)}

    def verb_forget(self, args: Mapping[str, Any]) -> Any:
        self.runs.pop(args["run"], None)
        return {}

    def verb_strays(self, args: Mapping[str, Any]) -> Any:
        return {"found": []}

    def verb_scopes(self, args: Mapping[str, Any]) -> Any:
        return {"scopes": [{"scope": scope, "changes": len(noted)} for scope, noted in self.noted.items()]}

    def verb_restore(self, args: Mapping[str, Any]) -> Any:
        restored = []
        for what, value in reversed(self.noted.pop(args["scope"], {}).items()):
            before = getattr(self, what)
            setattr(self, what, value)
            restored.append({"what": what, "before": before, "after": value, "ok": True, "why": ""})
        return {"restored": restored}

    def make_files(self, run: Mapping[str, Any]) -> dict[str, bytes]:
        """A burn of the asked length, and a thermal log from 0.3 s before it to 0.3 s after."""
        began, count = run["began"], round(run["duration_s"] / run["interval_s"])
        rate = 1000.0 if run["fan"] == "1" else 800.0
        start = {"event": "start", "threads": 8, "interval_s": run["interval_s"], "stamp": began, "virtual": True}
        lines: list[dict[str, Any]] = [start]
        at_s = began["monotonic_s"]
        for index in range(count):
            end_s = began["monotonic_s"] + (index + 1) * run["interval_s"]
            work = rate * (end_s - at_s)
            lines.append({
                "event": "interval", "index": index, "start_monotonic_s": at_s, "end_monotonic_s": end_s,
                "operations": work, "operations_per_s": rate,
            })  # fmt: skip
            at_s = end_s
        moved = {key: value + at_s - began["monotonic_s"] for key, value in began.items()}
        total = sum(line["operations"] for line in lines[1:])
        lines.append({"event": "end", "why": "duration", "stamp": moved, "operations": total})
        header = "wall_unix_s,monotonic_s,boottime_s,lateness_s,soc-thermal_celsius,policy0_cur_khz,missing"
        rows = [header]
        first_s = began["monotonic_s"] - 0.3
        step_s = run["duration_s"] / 4  # more often than asked for: the window is short
        for tick in range(int((at_s + 0.3 - first_s) / step_s) + 1):
            later_s = tick * step_s - 0.3
            clocks = [began[key] + later_s for key in ("wall_unix_s", "monotonic_s", "boottime_s")]
            hot = 60.0 if run["fan"] == "1" else 86.8
            silent = tick == 1
            rows.append(
                ",".join(f"{clock:.6f}" for clock in clocks)
                + f",0.0001,{hot},{'' if silent else 2208000},{'policy0_cur_khz=EAGAIN' if silent else ''}"
            )
        meta = {
            "schema_version": 1, "boot_id": run["boot_id"], "period_s": run["period_s"],
            "columns": {"soc-thermal_celsius": "/sys/class/thermal/thermal_zone0/temp", "policy0_cur_khz": "/sys/x"},
            "started": began, "program_sha256": "0" * 64, "hostname": self.hostname, "virtual": True,
        }  # fmt: skip
        return {
            "workload/burn.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode(),
            "thermal.csv": ("\n".join(rows) + "\n").encode(),
            "thermal.meta.json": json.dumps(meta).encode(),
            "logs/workload.log": b"",
        }


class FakeDoor:
    """One connection to a fake board."""

    def __init__(self, board: FakeBoard) -> None:
        self._board = board
        self._open = True
        board.open_doors += 1

    def call(
        self,
        verb: str,
        args: Mapping[str, object],
        *,
        deadline_s: float,
        blobs: object = None,
        on_event: Callable[[dict[str, object]], None] | None = None,
        on_data: Callable[[str, bytes], None] | None = None,
    ) -> Any:
        assert self._open, "a call on a closed door"
        assert deadline_s > 0
        if on_event is not None:
            on_event({"event": "phase", "name": verb, "message": "works"})
        return self._board.answer(verb, args, on_data)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._board.open_doors -= 1

    def __enter__(self) -> FakeDoor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Fleet:
    """Fake boards by name, and the values that a campaign takes."""

    def __init__(self, *names: str) -> None:
        self.fakes = {name: FakeBoard(name) for name in names}
        self.unreachable: dict[str, Exception] = {}
        self.boards = tuple(
            Board(
                name, "nanopi-r76s", Access("127.0.0.1"), ("npu",), frozenset({"cpu"}), Cooling("virtual"),
                Identity(hostname=name), {}, f"lab.yml:{line}",
            )
            for line, name in enumerate(names, start=3)
        )  # fmt: skip
        by_name = {board.name: board for board in self.boards}
        self.inventory = Inventory(Path("lab.yml"), by_name, {"npu": tuple(names)}, Path("known_hosts"), None)

    def __getitem__(self, name: str) -> FakeBoard:
        return self.fakes[name]

    def open(self, board: Board) -> FakeDoor:
        if board.name in self.unreachable:
            raise self.unreachable[board.name]
        return FakeDoor(self.fakes[board.name])


MATRIX = """\
version: 1
name: small
question: Does it work?
boards: {kinds: [nanopi-r76s], together: each}
workload: {name: burn, threads: all, interval_s: 60}
duration_s: 1860
factors:
  cooling: {kind: phase, levels: [active, fanless]}
repeats: 1
order: blocked
seed: 7
attempts: 2
cool: {zone_types: [soc-thermal], below_celsius: 50, timeout_s: 600}
settings: {governor: performance}
logger: {payload: thermal-logger, period_s: 1}
metrics:
  - {name: steady, unit: operations/s, direction: higher-is-better}
"""


PAYLOAD = """\
version: 1
name: {name}
summary: for tests
boards: {{kinds: [nanopi-r76s]}}
files:
  - {{source: program.py, path: program.py, mode: "0755"}}
"""


def write_project(folder: Path) -> tuple[Path, Path]:
    """A matrix file and a payloads folder; (matrix, payloads)."""
    matrix = folder / "small.yml"
    matrix.write_text(MATRIX)
    for name in ("burn", "thermal-logger"):
        (folder / "payloads" / name).mkdir(parents=True)
        (folder / "payloads" / name / "program.py").write_text(f"# {name}\n")
        (folder / "payloads" / name / "payload.yml").write_text(PAYLOAD.format(name=name))
    return matrix, folder / "payloads"
