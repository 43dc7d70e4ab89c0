"""The command line."""

from __future__ import annotations

import argparse
import json
import os
import sys

from . import check, health, restore, settings, status, sysfs
from .faults import UserError
from .service import Service


def _say(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-floor",
        description="Raises the lowest GPU clock while a model with experts on the CPU is being run. "
        "Without an option it runs as the service (root).",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check", action="store_true", help="say what would be found and what is missing; no root needed"
    )
    what.add_argument("--status", action="store_true", help="the running service's state as JSON; 1 when none runs")
    what.add_argument("--health", action="store_true", help="0 when the service runs and can see calls")
    what.add_argument("--restore", action="store_true", help="take back a floor that a dead service left (root)")
    what.add_argument("--sysfs-worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="--check as JSON")
    parser.add_argument("--settings", default=settings.PATH, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--sys", default="/sys", metavar="DIR", help="where sysfs is; default: %(default)s")
    parser.add_argument("--run-dir", default=status.RUN_DIR, metavar="DIR", help="default: %(default)s")
    return parser


def main(argv: list[str] | None = None) -> int:
    """0 fine, 1 the board is not as it should be, 2 wrong settings or command line."""
    args = _parser().parse_args(argv)
    if args.sysfs_worker:
        return sysfs.serve()
    try:
        return _run(args)
    except UserError as error:
        print(f"gpu-floor: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"gpu-floor: {where}{error.strerror}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    if args.status:
        found = status.read(args.run_dir)
        if found is None:
            print("gpu-floor: the service does not run", file=sys.stderr)
            return 1
        _say(json.dumps(found, sort_keys=True, indent=1))
        return 0
    if args.health:
        return health.health(args.run_dir, _say)
    if args.restore:
        return restore.restore(args.run_dir, _say)
    wanted = settings.load(args.settings)
    if args.check:
        findings = check.check(wanted, args.sys, args.run_dir)
        _say(json.dumps(findings, sort_keys=True, indent=1) if args.json else check.as_text(findings))
        return 1 if findings["advice"] else 0
    if os.geteuid() != 0:
        raise UserError("the service needs root, to watch calls and to write the clock; try --check without it")
    os.makedirs(args.run_dir, exist_ok=True)
    return Service(args.settings, args.sys, args.run_dir, _say).run()
