"""A made `llama.jsonl`, as the payload writes it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

STAMP = {"wall_unix_s": 1.5, "monotonic_s": 30.0, "boottime_s": 30.0}
LOWEST_HZ, FLOOR_HZ = 306_000_000, 1_020_000_000
MISSING = {"missing": "no block device"}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def start(**more: Any) -> dict[str, Any]:
    return {
        "event": "start", "stamp": STAMP, "virtual": True, "build": "/opt/x/stock", "server_sha256": sha("server"),
        "model": {"path": "/m/small.gguf", "size_bytes": 1000}, "device": MISSING, "threads": 2, "predict_tokens": 4,
        "requests": 2, "cache_mib": 0, "prompts_sha256": sha("prompts"), "expect_floor": None,
        "expect_cache": None, "argv": ["/opt/x"], "environment": {}, **more,
    }  # fmt: skip


def request(index: int, **more: Any) -> dict[str, Any]:
    begin = 10.0 + 5 * index
    return {
        "event": "request", "index": index, "prompt": f"en-{index + 1}", "language": "en", "start_monotonic_s": begin,
        "end_monotonic_s": begin + 3, "prompt_tokens": 20, "prompt_ms": 1000.0, "predicted_tokens": 4,
        "predicted_ms": 2000.0 - 1000 * index, "text": "abcd", "tokens": [1, 2, 3, 4],
        "text_sha256": sha(f"text{index}"),
        "device_read_bytes": MISSING, "process_read_bytes": 1 << 20, "cache": MISSING,
        "gpu": {"node": "/x", "period_s": 0.1, "lowest_hz": LOWEST_HZ, "min_hz": {str(LOWEST_HZ): 10},
                "cur_hz": {str(LOWEST_HZ): 10}}, **more,
    }  # fmt: skip


def lines(
    *requests: dict[str, Any], start_more: dict[str, Any] | None = None, **more: dict[str, Any]
) -> list[dict[str, Any]]:
    """A whole file; `more`: values of the events `floor`, `cache`, `perplexity` and `end` that differ."""
    asked = list(requests) or [request(0), request(1)]
    whole: dict[str, dict[str, Any]] = {
        "floor": {"status": {"missing": "gpu-floor is not installed"}, "stamp": STAMP},
        "cache": {"counters": {"missing": "no cache in this arm"}},
        "perplexity": {"value": 6.2344, "standard_error": 0.1, "chunks": 2, "context_tokens": 128,
                       "text_sha256": sha("ours")},
        "end": {"why": "all prompts were answered", "stamp": STAMP, "requests": len(asked), "tokens": 4 * len(asked)},
    }  # fmt: skip
    return [
        start(**{"requests": len(asked), **(start_more or {})}),
        {"event": "ready", "start_monotonic_s": 8.0, "ready_monotonic_s": 9.5, "floor_watching_after_s": MISSING},
        *asked,
        *({"event": name, **values, **more.get(name, {})} for name, values in whole.items()),
    ]


def write(folder: Path, events: list[dict[str, Any]], tail: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "llama.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + tail)
    return folder
