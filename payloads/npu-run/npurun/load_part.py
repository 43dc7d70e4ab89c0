"""The load's board of a run: a fresh scheduler, then the load generator; and the bell for the nodes."""

import json
import os
import subprocess
import sys
import time

from npuforge import security
from npurun import children, identity, virtual_board
from npurun.bell import BEGIN, END, Bell
from npurun.node_part import PartError

REPORT, SAMPLES = "load.json", "requests.parquet"


def config(options, folder):
    """The scheduler's config file; returns its path."""
    # In a stretched world patience is stretched too.
    patience = max(1.0, options.stretch)
    tables = {
        "server": {"grpc_listen": f"{options.address}:50051", "http_listen": f"{options.address}:8080"},
        "scheduler": {
            "policy": options.policy,
            "stale": options.stale,
            "request_timeout_ms": round(5000 * patience),
            "node_rpc_timeout_ms": round(3000 * patience),
            "queue_timeout_ms": round(3000 * patience),
        },
        "health": {"interval_ms": round(2000 * patience), "timeout_ms": round(1000 * patience)},
        "transport": {
            "node_connections": options.node_connections,
            **identity.transport(options, security.SCHEDULER_NAME),
        },
    }
    path = os.path.join(folder, "scheduler.toml")
    with open(path, "x", encoding="utf-8") as file:
        file.write(children.toml(tables))
    return path


def load_argv(options, begin_s):
    """The load generator's command line."""
    argv = [
        "--scheduler", f"{options.address}:50051", "--model", options.model, "--out", options.out,
        "--report", REPORT, "--events", "--expect-nodes", options.nodes,
        "--concurrency", str(options.concurrency), "--duration", repr(options.duration_s),
        "--interval-s", repr(options.interval_s), "--warmup", str(options.warmup), "--seed", str(options.seed),
        "--timeout-ms", str(round(10000 * max(1.0, options.stretch))), "--patience-s", repr(options.lead_s),
        "--begin-monotonic-s", repr(begin_s), "--node-connections", str(options.node_connections),
        "--max-error-rate", repr(options.max_error_rate),
        *identity.load_words(options),
    ]  # fmt: skip
    if options.preheat:
        argv.append("--preheat")
    if options.mode == "open":
        argv += ["--mode", "open", "--rate", repr(options.rate), "--arrivals", options.arrivals]
    return argv


def run(options):
    """The whole part; returns the load generator's exit code. PartError, BellError or SecurityError when it could not
    be made."""
    identity.check(options, security.SCHEDULER_NAME, security.CLIENT_NAME)
    begin_s = time.clock_gettime(time.CLOCK_MONOTONIC) + options.lead_s
    scheduler_log, load_log = (os.path.join(options.out, name) for name in ("scheduler.log", "load.log"))
    scheduler = load = None
    bell = Bell(options.bell)
    try:
        with virtual_board.Registered():
            scheduler = children.start("npu-scheduler", ["--config", config(options, options.out)], scheduler_log)
            bell.gather(options.nodes.split(","), options.lead_s)
            load = children.start("npu-load", load_argv(options, begin_s), load_log, stdout=subprocess.PIPE)
            for line in load.stdout:
                event = json.loads(line).get("event")
                if event in (BEGIN, END):
                    bell.ring(event)
            code = load.wait()
        if code == 3:
            print(f"npu-run: the load does not count: {children.last_line(load_log)}", file=sys.stderr)
        if code in (0, 3):
            return code
        raise PartError(f"the load could not be made: {children.last_line(load_log)}")
    finally:
        for child in (load, scheduler):
            if child is not None:
                children.end(child)
        bell.close()
