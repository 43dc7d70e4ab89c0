#!/usr/bin/env python3
"""Says whether llama-server answers: waits for it up to 50 s, prints one line, exit code 0 or 1.

It reads `settings.json` beside it, as the board's side of boardbench writes it: `host`, `port`, `model`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request

WAIT_S = 50.0
ANSWER_S = 5.0
PAUSE_S = 0.2


def look(host: str, port: int) -> str:
    """What is wrong now; empty when the server says that it is well."""
    url = f"http://{host}:{port}/health"
    # No proxy of the environment: this is this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=ANSWER_S) as answer:
            status = json.loads(answer.read().decode("utf-8", "replace")).get("status")
            return "" if status == "ok" else f"its status is {status!r}"
    except urllib.error.HTTPError as error:
        return "it is still loading its model" if error.code == 503 else f"it answers {error.code}"
    except (OSError, ValueError, AttributeError) as error:
        return f"no answer ({getattr(error, 'reason', None) or error})"


def main() -> int:
    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "settings.json")
    try:
        with open(place, encoding="utf-8") as file:
            settings = json.load(file)
        host, port = str(settings["host"]), int(settings["port"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{place} names no host and port: {error}")
        return 1
    until = time.monotonic() + WAIT_S
    while True:
        wrong = look(host, port)
        if not wrong:
            print(f"llama-server answers at {host}:{port} ({settings.get('model')})")
            return 0
        if time.monotonic() >= until:
            model = settings.get("model")
            there = "" if model and os.path.exists(str(model)) else f"; there is no model {model}"
            print(f"llama-server at {host}:{port}: {wrong}{there}; see: journalctl -u llama-expert-cache")
            return 1
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())
