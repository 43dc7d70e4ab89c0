"""journalctl of a bwrap board: what one unit printed, from the log that the systemctl stand-in keeps of it."""

import argparse
import os
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="journalctl")
    parser.add_argument("-u", "--unit", required=True)
    parser.add_argument("-n", "--lines", default="all")
    parser.add_argument("-o", "--output")
    parser.add_argument("-b", "--boot", action="store_true")
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("--no-pager", action="store_true")
    wish = parser.parse_args()
    unit = wish.unit if "." in wish.unit else wish.unit + ".service"
    try:
        with open("/var/log/journal/" + os.path.basename(unit) + ".log", errors="replace") as log:
            lines = log.readlines()
    except FileNotFoundError:
        print("-- No entries --")
        return 0
    sys.stdout.writelines(lines if wish.lines == "all" else lines[-int(wish.lines) :])
    return 0


if __name__ == "__main__":
    sys.exit(main())
