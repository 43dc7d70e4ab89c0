"""The load generator as a program.

Exit codes: 0 a valid run, 3 a run that does not count (its files are there, and say why), 1 it could not be made,
2 the command line is wrong.
"""

import array
import asyncio
import json
import os
import platform
import sys
import time
import uuid

import grpc

from npuforge import loop, memory, security, stamps
from npuload import intervals, loops, parquet, report
from npuload.cluster import ClusterError, Scheduler, snapshot
from npuload.images import Requests
from npuload.options import CLOSED, UsageError, parse
from npuload.outputs import golden
from npuload.parquet import Column
from npuload.requests import LEGS, MISSING_US, STAGES, Samples

VERSION = "1"
SAMPLES = "requests.parquet"
POLL_S = 0.2


class LoadError(Exception):
    """The run could not be made; one sentence."""


def tell(options, event, **fields):
    """One JSON line for whoever started this program."""
    if options.events:
        print(json.dumps({"event": event, **fields}, sort_keys=True), flush=True)


def new_file(folder, name, mode):
    """A file that was not there. LoadError when it was: a result is never written over."""
    path = os.path.join(folder, name)
    try:
        return open(path, mode + "x" if "b" not in mode else "xb")
    except FileExistsError:
        raise LoadError(f"{path} is there already: give each run a folder of its own") from None
    except OSError as error:
        raise LoadError(f"{path} cannot be written: {error.strerror}") from None


class Load:
    """One run against one scheduler."""

    def __init__(self, options, secured):
        self.options = options
        utc = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.id = f"{utc}-{uuid.uuid4().hex[:8]}"
        connections = options.concurrency if options.mode == CLOSED else options.connections
        self.scheduler = Scheduler(options.scheduler, secured, connections, options.timeout_ms / 1000, options.engine)
        self.requests = Requests(options.model, options.seed, options.payload_slots, options.payload_bytes, self.id)
        self.numbers = loops.Numbers()
        self.clients = connections
        self.began = self.ended = None

    async def ready_nodes(self):
        """`ListNodesResponse` with exactly the nodes that are expected, all ready. LoadError after the patience."""
        until = time.monotonic() + self.options.patience_s
        listed, why = None, ""
        while True:
            try:
                listed = await self.scheduler.nodes()
                why = self._lacking(listed)
            except ClusterError as error:
                listed, why = None, str(error)
            if listed is not None and not why:
                return listed
            if not self.options.nodes or time.monotonic() >= until:
                raise LoadError(why)
            await asyncio.sleep(POLL_S)

    def _lacking(self, listed):
        ready = {node.descriptor.node_id for node in listed.nodes if not node.excluded_because}
        there = {node.descriptor.node_id for node in listed.nodes}
        wanted = set(self.options.nodes)
        if wanted and there - wanted:
            return f"nodes that were not asked for are registered: {', '.join(sorted(there - wanted))}"
        if wanted - ready:
            why = {node.descriptor.node_id: node.excluded_because for node in listed.nodes}
            said = (f"{name} ({why.get(name) or 'not registered'})" for name in sorted(wanted - ready))
            return f"nodes are not ready: {', '.join(said)}"
        return ""

    async def run(self):
        """The whole run; returns (report, samples)."""
        options = self.options
        before = await self.ready_nodes()
        serving = [node for node in before.nodes if not node.excluded_because]
        outputs = await golden(self.scheduler, self.requests, self.numbers, serving, options.model)
        if not outputs["ok"]:
            return self._not_loaded(before, outputs)
        good = await loops.warm_up(self.scheduler, self.requests, self.numbers, self.clients, options.warmup)
        if options.warmup and not good:
            raise LoadError("not one request of the warm-up was answered: is the model the right one?")
        offset = await self.scheduler.clock_offset()
        before = await self.ready_nodes()
        begin_s = options.begin_monotonic_s
        if begin_s is not None and begin_s < loops.clock():
            late_s = loops.clock() - begin_s
            raise LoadError(f"the load was to begin {late_s:.1f} s ago: the cluster took too long to be ready")
        if options.preheat:
            left_s = begin_s - loops.clock()
            await loops.closed_loop(
                self.scheduler, self.requests, self.numbers, self.clients, loops.clock(), left_s, None
            )
        await loops.sleep_until(begin_s or 0.0)
        self.began = stamps.now()
        tell(options, "begin", run_id=self.id, stamp=self.began)
        begin_s = loops.clock()
        samples = await self._load(begin_s)
        end_s = loops.clock()
        self.ended = stamps.now()
        after = await self.scheduler.nodes()
        # Only now: who hears it may leave, and must not be missed in the list.
        tell(options, "end", run_id=self.id, stamp=self.ended)
        return self._report(samples, (begin_s, end_s), before, after, outputs, offset), samples

    def _not_loaded(self, before, outputs):
        """(report, no samples) of a cluster whose outputs cannot be trusted: no throughput of it means anything."""
        self.began = self.ended = stamps.now()
        at_s, nothing = loops.clock(), Samples()
        made = self._report(nothing, (at_s, at_s), before, before, outputs, None)
        why = {"kind": "golden-outputs-differ", "why": outputs["why"]}
        return {**made, "verdict": {"valid": False, "reasons": [why]}, "intervals": []}, nothing

    async def _load(self, begin_s):
        options = self.options
        limits = (begin_s, options.duration, options.requests)
        if options.mode == CLOSED:
            return await loops.closed_loop(self.scheduler, self.requests, self.numbers, options.concurrency, *limits)
        plan = (options.arrivals, options.rate, options.seed, options.connections, options.max_under_way)
        return await loops.open_loop(self.scheduler, self.requests, self.numbers, plan, *limits)

    def _report(self, samples, window, before, after, outputs, offset):
        options = self.options
        begin_s, end_s = window
        before_list, after_list = snapshot(before), snapshot(after)
        summed = report.summary_of(samples, end_s - begin_s)
        answered = len(summed["per_node"])
        name = f"{options.model}-c{options.concurrency}-n{answered}"
        return {
            "format_version": report.FORMAT_VERSION,
            "run_id": f"{name}-{self.id}",
            # When the load began; the rig's own tool stamps the end of it under this name.
            "started_at": f"unix:{int(self.began['wall_unix_s'])}",
            "conditions": {
                "scheduler_address": options.scheduler,
                "model_id": options.model,
                "concurrency": options.concurrency if options.mode == CLOSED else None,
                "duration_s": options.duration,
                "requests": options.requests,
                "payload_bytes": options.payload_bytes,
                "input_format": "rgb8",
                "payload_seed": options.seed,
                "bench_version": VERSION,
                "scheduler_policy": before.policy or options.policy,
                "node_count": answered,
                "mode": options.mode,
                "rate_per_s": options.rate,
                "arrivals": options.arrivals if options.mode != CLOSED else None,
                "client_connections": self.clients,
                "node_connections": options.node_connections,
                "security": "plaintext" if options.plaintext else "tls",
                "stale_scheduler": before.stale,
                "engine": options.engine,
                "event_loop": loop.NAME,
                "grpc": grpc.__version__,
                "python": platform.python_version(),
            },
            "summary": summed,
            "verdict": report.verdict(samples, before_list, after_list, options.max_error_rate, options.min_samples),
            "nodes_before": before_list,
            "nodes_after": after_list,
            "warmup_discarded": options.warmup * self.clients,
            "caveats": list(report.CAVEATS),
            "started": self.began,
            "ended": self.ended,
            "window_monotonic_s": [begin_s, end_s],
            "latency_from": "the intended start of each request",
            "stages": report.stages(samples),
            "littles_law": report.littles_law(samples, summed["throughput"]),
            "steady_per_node": report.steady_per_node(samples, begin_s, end_s),
            "longest_silence_s": report.longest_silence(samples, begin_s, end_s),
            "intervals": intervals.intervals(samples, begin_s, end_s, options.interval_s),
            "nodes_expected": options.nodes or None,
            "golden": outputs,
            "scheduler_clock_offset_us": None if offset is None else {"offset": offset[0], "error": offset[1]},
            "first_error_messages": samples.first_messages,
            "virtual": any(node["runtime_version"] == "virtual" for node in before_list),
            "samples_file": SAMPLES,
        }


def write_samples(file, made, samples):
    """The per-request table; times count from the load's begin, latency from the intended start."""
    begin_s = made["window_monotonic_s"][0]
    intended, sent, ended = samples.intended_s, samples.sent_s, samples.ended_s
    # Seven digits: what lies behind them is no time, and packs badly.
    table = [
        Column(name, array.array("d", (round(value - begin_s, 7) for value in values)))
        for name, values in (("start_s", intended), ("sent_s", sent), ("end_s", ended))
    ]
    latency_ms = (round(1000 * (end - at), 4) for at, end in zip(intended, ended))
    table += [
        Column("latency_ms", array.array("d", latency_ms)),
        Column("ok", bytearray(code == 0 for code in samples.code)),
        # A request that failed before it came to a node has none.
        Column("node", samples.node, samples.nodes.list(), samples.nodes.known.get("")),
        Column("code", samples.code, samples.codes.list()),
        Column("attempts", samples.attempts),
        Column("client", samples.client),
        Column("number", samples.number),
    ]
    table += [Column(f"{name}_us", samples.stages[name], None, MISSING_US) for name in (*STAGES, *LEGS)]
    about = {"run_id": made["run_id"], "virtual": json.dumps(made["virtual"]), "begin": json.dumps(made["started"])}
    parquet.write(file, about, table)


def show(made):
    """The report in a few lines on stderr, the verdict first."""
    summed, verdict = made["summary"], made["verdict"]
    if not made["golden"]["ok"]:
        why = f"the golden outputs differ, no throughput is measured: {made['golden']['why']}"
        print(f"INVALID: {why}", file=sys.stderr)
        return
    if not verdict["valid"]:
        kinds = ", ".join(reason["kind"] for reason in verdict["reasons"])
        print(f"INVALID: {kinds}", file=sys.stderr)
    latency = summed["latency"]
    rate = summed["throughput"]
    text = f"{made['run_id']}: {summed['succeeded']} ok, {summed['failed']} failed"
    if latency is not None and rate is not None:
        p50, p95, p99 = (latency[name] / 1000 for name in ("p50", "p95", "p99"))
        text += f", {rate:.1f} inf/s, latency p50 {p50:.1f} p95 {p95:.1f} p99 {p99:.1f} ms (this run)"
    print(text, file=sys.stderr)


def main(argv):
    """Runs it; returns the exit code."""
    try:
        options = parse(argv)
    except UsageError as error:
        print(f"npu-load: {error}", file=sys.stderr)
        return 2
    try:
        os.makedirs(options.out, exist_ok=True)
        # Said before the load, not after it.
        for name in (SAMPLES, options.report):
            if name and os.path.exists(os.path.join(options.out, name)):
                raise LoadError(f"{options.out} holds a run already ({name}): give each run a folder of its own")
        memory.keep_freed_memory()
        return loop.run(_run(options))
    except (LoadError, ClusterError, security.SecurityError, OSError) as error:
        print(f"npu-load: {error}", file=sys.stderr)
        return 1


async def _run(options):
    table = {"security": "plaintext" if options.plaintext else "tls"}
    for key in ("ca_file", "certificate_file", "key_file"):
        table[key] = getattr(options, key) or ""
    load = Load(options, security.load_security(table))
    try:
        made, samples = await load.run()
    finally:
        await load.scheduler.close()
    with new_file(options.out, SAMPLES, "b") as file:
        write_samples(file, made, samples)
    with new_file(options.out, options.report or f"{made['run_id']}.json", "") as file:
        json.dump(made, file, indent=2, allow_nan=False)
    show(made)
    return 0 if made["verdict"]["valid"] else 3
