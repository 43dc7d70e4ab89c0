#!/usr/bin/env python3
"""Stands for llama-server and llama-perplexity where the load, and not inference, is under test.

FAKE_LLAMA in the environment: `die` (ends by itself at the third prompt), `deaf` (never healthy), `error` (HTTP 500).
"""

import http.server
import json
import os
import sys

MODE = os.environ.get("FAKE_LLAMA", "")
asked = 0


class Answers(http.server.BaseHTTPRequestHandler):
    def _say(self, code, value):
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self._say(503 if MODE == "deaf" else 200, {"status": "ok"})

    def do_POST(self):
        global asked
        asked += 1
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if MODE == "die" and asked == 3:
            os.kill(os.getpid(), 9)
        if MODE == "error":
            self._say(500, {"error": "Compute error."})
            return
        count = body["n_predict"]
        timings = {"prompt_n": 21, "prompt_ms": 10.5, "predicted_n": count, "predicted_ms": 2.5 * count}
        self._say(200, {"content": body["prompt"][::-1], "tokens": list(range(count)), "timings": timings})

    def log_message(self, *words):
        pass


def main():
    words = sys.argv
    if words[0].endswith("llama-perplexity"):
        print("Final estimate: PPL = 6.2344 +/- 0.04012" if MODE != "error" else "out of memory")
        return 0
    host, port = words[words.index("--host") + 1], int(words[words.index("--port") + 1])
    http.server.ThreadingHTTPServer((host, port), Answers).serve_forever()
    return 0


sys.exit(main())
