"""A node of a run: a fresh agent, and a record of what it served while the load ran."""

import json
import os
import threading
import time

import grpc

from npuforge import npuforge_pb2 as pb
from npuforge import rpc
from npuforge.stamps import now
from npurun import children, identity, virtual_board
from npurun.agent import Agent
from npurun.bell import BEGIN, END, BellError, Hearer

RAW = "node.jsonl"
POLL_S = 0.1
CALL_S = 2.0


class PartError(Exception):
    """This part of the run failed; one sentence."""


class Counter:
    """The agent's own count of inferences, asked for over its telemetry."""

    def __init__(self, channel):
        self._channel = channel
        # An agent that was started again counts from 0.
        self._before, self._last = [0, 0], [0, 0]
        method = rpc.NODE["StreamTelemetry"]
        self._call = self._channel.unary_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )

    def read(self):
        """(monotonic seconds, inferences, errors) now. PartError when the agent does not say."""
        try:
            stream = self._call(pb.StreamTelemetryRequest(period_ms=1000), timeout=CALL_S)
            for sample in stream:
                stream.cancel()
                here = [sample.inferences_total, sample.errors_total]
                if here[0] < self._last[0]:
                    self._before = [before + last for before, last in zip(self._before, self._last)]
                self._last = here
                at_s = time.clock_gettime(time.CLOCK_MONOTONIC)
                return (at_s, *(before + count for before, count in zip(self._before, here)))
        except grpc.RpcError as error:
            raise PartError(f"the agent does not tell its count: {error.code().name}") from None
        raise PartError("the agent does not tell its count: it drains")

    def close(self):
        """Hangs up."""
        self._channel.close()


def config(options, folder):
    """The agent's config file; returns its path."""
    backend = {"type": options.backend}
    if options.backend == "virtual":
        backend["seed"] = options.seed
        with open(os.path.join(os.path.dirname(children.program("npu-node")), "npunode", "virtual_constants.json"),
                  encoding="utf-8") as file:  # fmt: skip
            constants = json.load(file)
        path = os.path.join(folder, "constants.json")
        with open(path, "x", encoding="utf-8") as file:
            json.dump(virtual_board.stretched(constants, options.stretch), file, indent=1)
        backend["constants_file"] = path
        backend["zero_time"] = options.zero_time
    models = {"model_id": options.model}
    if options.model_file:
        models["directory"], models["file"] = os.path.split(options.model_file)
        models["sha256"] = options.model_sha256
    tables = {
        "node": {"id": options.name, "scheduler_address": options.scheduler, "listen": options.listen},
        "transport": identity.transport(options, options.name),
        "worker": {"worker_count": options.workers},
        "backend": backend,
        "models": models,
        # In a stretched world news is as old as it is elsewhere.
        "telemetry": {"heartbeat_interval_ms": round(1000 * max(1.0, options.stretch))},
    }
    path = os.path.join(folder, "node.toml")
    with open(path, "x", encoding="utf-8") as file:
        file.write(children.toml(tables))
    return path


class Raw:
    """The raw file: a JSON line an event, from whichever thread."""

    def __init__(self, file):
        self._file = file
        self._lock = threading.Lock()

    def note(self, event, **fields):
        """Writes one event."""
        with self._lock:
            self._file.write(json.dumps({"event": event, **fields}, sort_keys=True) + "\n")
            self._file.flush()


def run(options):
    """The whole part; PartError, BellError or SecurityError when it did not go as planned."""
    identity.check(options, options.name)
    if options.libraries:
        # The agent looks there after what lies beside it.
        os.environ["NPU_LIBRARIES"] = options.libraries
    with open(os.path.join(options.out, RAW), "x", encoding="utf-8") as file:
        raw = Raw(file)
        agent = Agent(config(options, options.out), os.path.join(options.out, "agent.log"), raw.note)
        try:
            _follow(options, agent, raw)
        finally:
            code = agent.end()
        if code != 0:
            raise PartError(f"the agent ended with code {code}: {children.last_line(agent.log)}")


def _alive(agent):
    why = agent.dead()
    if why is not None:
        raise PartError(why)


def _follow(options, agent, raw):
    raw.note(
        "start", node=options.name, backend=options.backend, stretch=options.stretch, stamp=now(),
        virtual=virtual_board.is_virtual(), interval_s=options.interval_s,
    )  # fmt: skip
    hearer = Hearer(options.bell, options.name, options.patience_s)
    counter = Counter(identity.channel(options, options.listen, options.name))
    try:
        _wait_for_begin(options, agent, hearer)
        if options.fault != "none":
            agent.fault(options.fault, options.duration_s * options.fault_at, options.fault_for_s)
        _count(options, agent, raw, hearer, counter)
    finally:
        counter.close()
        hearer.close()


def _wait_for_begin(options, agent, hearer):
    until = time.monotonic() + options.patience_s
    try:
        while not hearer.wait(BEGIN, min(until, time.monotonic() + POLL_S)):
            _alive(agent)
            if time.monotonic() >= until:
                raise BellError(f"the load did not begin within {options.patience_s:g} s")
    except BellError as error:
        # Whoever loads knows only that a node is not there; the agent knows why: a token, a certificate, an address.
        raise PartError(f"{error}; the agent said last: {children.last_line(agent.log)}") from None


def _read(counter, agent):
    """The count now; None while a fault keeps the agent from telling it."""
    try:
        found = counter.read()
    except PartError:
        if agent.fault_under_way:
            return None
        raise
    agent.answers()
    return found


def _count(options, agent, raw, hearer, counter):
    """An interval line every `interval_s` until the load ends; what is left then belongs to the last one.

    A fault makes one long interval of those that it falls into.
    """
    first = last = counter.read()
    index, ended = 0, False
    end_s = first[0] + options.duration_s
    limit = time.monotonic() + options.duration_s + options.patience_s
    due = first[0] + options.interval_s
    while not ended:
        # A rest shorter than half an interval is no interval of its own.
        last_one = due + options.interval_s / 2 >= end_s
        ended = hearer.wait(END, min(limit, time.monotonic() + POLL_S) if last_one else due)
        _alive(agent)
        if time.monotonic() >= limit:
            raise PartError("the load did not end in time")
        if last_one and not ended:
            continue
        due += options.interval_s
        here = _read(counter, agent)
        while ended and here is None and time.monotonic() < limit:
            time.sleep(POLL_S)
            here = _read(counter, agent)
        if here is None:
            continue
        raw.note(
            "interval", index=index, start_monotonic_s=last[0], end_monotonic_s=here[0],
            amount=here[1] - last[1], rate_per_s=(here[1] - last[1]) / (here[0] - last[0]), errors=here[2] - last[2],
        )  # fmt: skip
        index, last = index + 1, here
    raw.note("end", why="the load ended", stamp=now(), total=last[1] - first[1], errors=last[2] - first[2])
