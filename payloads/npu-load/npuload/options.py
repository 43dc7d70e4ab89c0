"""The command line, checked: what cannot be meant is one sentence and exit code 2."""

import argparse
import re

from npuforge import transport
from npuload.loops import CONSTANT, POISSON

CLOSED, OPEN = "closed", "open"


class UsageError(Exception):
    """The command line is wrong; one sentence."""


def parser():
    """All options, the rig's first."""
    made = argparse.ArgumentParser(prog="npu-load", description=__doc__)
    add = made.add_argument
    add("--scheduler", required=True, metavar="HOST:PORT", help="the scheduler's address")
    add("--model", default="yolov8n")
    add("--duration", type=float, metavar="S", help="seconds of load; or --requests")
    add("--requests", type=int, metavar="N")
    add("--concurrency", type=int, default=8, help="closed loop: clients, each with a connection of its own")
    add("--input-size", default="640x640x3")
    add("--warmup", type=int, default=5, help="requests of each client before the load, discarded")
    add("--seed", type=int, default=42)
    add("--payload-slots", type=int, default=16)
    add("--timeout-ms", type=int, default=10000)
    add("--out", required=True, metavar="FOLDER", help="where the report and the samples go; never overwritten")
    add("--report", metavar="NAME.json", help="the report's file name; else by the run's id")
    add("--policy", help="what the report says when the scheduler names no policy")
    add("--max-error-rate", type=float, default=0.01)
    add("--min-samples", type=int, default=100)
    add("--mode", choices=(CLOSED, OPEN), default=CLOSED)
    add("--rate", type=float, metavar="PER_S", help="open loop: arrivals a second")
    add("--arrivals", choices=(POISSON, CONSTANT), default=POISSON)
    add("--connections", type=int, default=8, help="open loop: connections that the requests take turns on")
    add("--max-under-way", type=int, default=4096, help="open loop: more are not sent, and counted as failed")
    add("--interval-s", type=float, default=1.0)
    add("--expect-nodes", default="", metavar="A,B", help="wait for exactly these nodes before the load")
    add("--patience-s", type=float, default=20.0, help="for --expect-nodes")
    add("--begin-monotonic-s", type=float, help="begin the load at this reading of the monotonic clock")
    add("--preheat", action="store_true", help="closed loop until --begin-monotonic-s, discarded, without a pause")
    add("--node-connections", type=int, help="what the scheduler was set to; only noted")
    add("--events", action="store_true", help="say begin and end of the load on stdout, a JSON line each")
    add("--engine", choices=transport.ENGINES, default=transport.ENGINES[0], help="what carries the requests")
    add("--plaintext", action="store_true", help="no TLS: must be asked for")
    add("--ca-file")
    add("--certificate-file")
    add("--key-file")
    return made


def parse(argv):
    """The options. UsageError, or SystemExit(2) by argparse."""
    options = parser().parse_args(argv)
    if (options.duration is None) == (options.requests is None):
        raise UsageError("give either --duration or --requests")
    positive = ("duration", "requests", "concurrency", "payload_slots", "timeout_ms", "interval_s", "connections")
    for name in (*positive, "max_under_way", "rate", "patience_s"):
        value = getattr(options, name)
        if value is not None and not 0 < value < 1e9:
            raise UsageError(f"--{name.replace('_', '-')} must be above 0, not {value}")
    if options.warmup < 0 or options.min_samples < 0 or not 0 <= options.max_error_rate <= 1:
        raise UsageError("--warmup and --min-samples must not be negative, --max-error-rate is a share from 0 to 1")
    if options.seed < 0:
        raise UsageError("--seed must not be negative")
    if (options.mode == OPEN) != (options.rate is not None):
        raise UsageError("--rate belongs to --mode open, and --mode open needs it")
    if not re.fullmatch(r"[^\s:]+:\d{1,5}", options.scheduler):
        raise UsageError(f"--scheduler must be HOST:PORT, not '{options.scheduler}'")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", options.model):
        raise UsageError(f"--model must be a plain name, not '{options.model}'")
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})x(\d{1,2})", options.input_size)
    if not match:
        raise UsageError(f"--input-size must be like 640x640x3, not '{options.input_size}'")
    options.payload_bytes = int(match[1]) * int(match[2]) * int(match[3])
    if not 0 < options.payload_bytes <= 10 * 1024 * 1024:
        raise UsageError(
            f"--input-size {options.input_size} is {options.payload_bytes} bytes; 1 to 10485760 can be sent"
        )
    if options.preheat and options.begin_monotonic_s is None:
        raise UsageError("--preheat needs --begin-monotonic-s: until when?")
    options.nodes = [name for name in options.expect_nodes.split(",") if name]
    if options.plaintext and (options.ca_file or options.certificate_file or options.key_file):
        raise UsageError("--plaintext, but certificates are named: remove one of the two")
    return options
