"""The requests: one after another, greedy, nothing reused, each with the server's own timings."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from . import counters, reads
from .floor import ClockWatch
from .raw import Trouble, now_s
from .server import Server

TIMINGS = {"prompt_n": "prompt_tokens", "prompt_ms": "prompt_ms", "predicted_n": "predicted_tokens",
           "predicted_ms": "predicted_ms"}  # fmt: skip


def load_prompts(path: str, wanted: int) -> list[dict[str, str]]:
    """The first `wanted` prompts (0: all). Raises Trouble."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        prompts = [{key: str(entry[key]) for key in ("name", "language", "text")} for entry in found]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Trouble(f"cannot read the prompts in {path}: {error}") from None
    if not prompts or wanted > len(prompts):
        raise Trouble(f"{path} has {len(prompts)} prompts, {wanted or 'some'} are wanted")
    return prompts[:wanted] if wanted else prompts


def body_of(text: str, predict: int) -> dict[str, Any]:
    """A request whose answer depends on the model and the text alone."""
    return {
        "prompt": text,
        "n_predict": predict,
        "temperature": 0,
        "seed": 1,
        "cache_prompt": False,
        # The same work for each arm: a model that likes to stop would be measured over fewer tokens.
        "ignore_eos": True,
        "return_tokens": True,
    }


class Asker:
    """Asks one server. Every look (bytes, counters) is outside of the time that the server takes for its answer."""

    def __init__(
        self, server: Server, device: reads.Device, cache: counters.Counters, node: str | None, limit_s: float
    ) -> None:
        self._server, self._device, self._cache, self._node, self._limit_s = server, device, cache, node, limit_s

    def ask(self, index: int, prompt: dict[str, str], predict: int) -> dict[str, Any]:
        """The values of one `request` event. Raises Trouble."""
        device, process = self._device.read_bytes(), reads.process_read_bytes(self._server.pid)
        watch = ClockWatch(self._node)
        watch.start()
        start_s = now_s()
        try:
            answer = self._server.complete(body_of(prompt["text"], predict), self._limit_s)
            end_s = now_s()
        finally:
            clocks = watch.stop()
        read = {
            "device_read_bytes": reads.between(device, self._device.read_bytes()),
            "process_read_bytes": reads.between(process, reads.process_read_bytes(self._server.pid)),
        }
        return {
            "index": index,
            "prompt": prompt["name"],
            "language": prompt["language"],
            "start_monotonic_s": start_s,
            "end_monotonic_s": end_s,
            **_timings(answer),
            **_text(answer),
            **read,
            "cache": counters.totals(self._cache.ask(self._server.pid)),
            "gpu": clocks,
        }


def _timings(answer: dict[str, Any]) -> dict[str, float]:
    timings = answer.get("timings")
    try:
        return {name: timings[key] for key, name in TIMINGS.items()}  # type: ignore[index]
    except (TypeError, KeyError):
        raise Trouble("the server's answer has no timings") from None


def _text(answer: dict[str, Any]) -> dict[str, Any]:
    text, tokens = answer.get("content"), answer.get("tokens")
    if not isinstance(text, str) or not isinstance(tokens, list):
        raise Trouble("the server's answer has no text or no tokens")
    # Half a character at the end cannot be told apart from another half: the tokens can.
    known = json.dumps({"text": text, "tokens": tokens}, ensure_ascii=False, sort_keys=True)
    return {"text": text, "tokens": tokens, "text_sha256": hashlib.sha256(known.encode()).hexdigest()}
