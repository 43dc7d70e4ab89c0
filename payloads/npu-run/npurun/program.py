"""The part's command line. Exit codes: 0 as planned, 3 the load's own verdict is "invalid", 1 it failed, 2 usage."""

import argparse
import os
import sys

from npuforge.security import SecurityError
from npurun import identity, load_part, node_part
from npurun.bell import BellError


def parser():
    """Both parts' options."""
    made = argparse.ArgumentParser(prog="npu-run", description=__doc__)
    parts = made.add_subparsers(dest="part", required=True)
    node, load = parts.add_parser("node"), parts.add_parser("load")
    for part in (node, load):
        part.add_argument("--out", required=True)
        part.add_argument("--bell", required=True, metavar="HOST:PORT")
        part.add_argument("--model", default="yolov8n")
        part.add_argument("--duration-s", type=float, required=True)
        part.add_argument("--interval-s", type=float, required=True)
        part.add_argument("--stretch", type=float, default=1.0, help="virtual: all takes so many times as long")
        part.add_argument("--seed", type=int, default=42)
        part.add_argument("--certificates", default=identity.FOLDER, metavar="FOLDER", help="made by ./inv certs")
        part.add_argument("--plaintext", action="store_true", help="no TLS: must be asked for")
    node.add_argument("--name", required=True)
    node.add_argument("--listen", required=True)
    node.add_argument("--scheduler", required=True)
    node.add_argument("--backend", choices=("virtual", "rknn", "onnx"), required=True)
    node.add_argument("--workers", type=int, default=8)
    node.add_argument("--model-file", default="")
    node.add_argument("--model-sha256", default="")
    node.add_argument("--libraries", default="")
    node.add_argument("--zero-time", action="store_true", help="virtual: inferences take no time")
    node.add_argument("--fault", choices=("none", "kill", "cut"), default="none", help="what befalls the agent")
    node.add_argument("--fault-at", type=float, default=0.3, help="when: at this share of the load")
    node.add_argument("--fault-for-s", type=float, default=2.0)
    node.add_argument("--patience-s", type=float, default=60.0)
    load.add_argument("--address", required=True)
    load.add_argument("--nodes", required=True, metavar="A,B")
    load.add_argument("--concurrency", type=int, required=True)
    load.add_argument("--node-connections", type=int, default=2)
    load.add_argument("--policy", default="round-robin")
    load.add_argument("--stale", action="store_true", help="the trap: never for a measurement")
    load.add_argument("--warmup", type=int, default=5)
    load.add_argument("--lead-s", type=float, default=10.0)
    load.add_argument("--preheat", action="store_true", help="load the cluster also before, as long as there is time")
    load.add_argument("--max-error-rate", type=float, default=0.01)
    load.add_argument("--mode", choices=("closed", "open"), default="closed")
    load.add_argument("--rate", type=float)
    load.add_argument("--arrivals", choices=("poisson", "constant"), default="poisson")
    return made


def main(argv):
    """Runs the part; returns the exit code."""
    options = parser().parse_args(argv)
    os.makedirs(options.out, exist_ok=True)
    try:
        if options.part == "load":
            return load_part.run(options)
        node_part.run(options)
        return 0
    except FileExistsError as error:
        print(f"npu-run: {error.filename} is there already: give each run a folder of its own", file=sys.stderr)
    except (node_part.PartError, BellError, SecurityError, OSError) as error:
        print(f"npu-run: {error}", file=sys.stderr)
    return 1
