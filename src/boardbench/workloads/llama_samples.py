"""What a run of `llama-load` yields: one interval a request, and the figures of the whole run.

Aggregation: decode is all generated tokens over all of the server's decode time; prefill is the mean of the server's
prompt time over requests; reads are sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from boardbench.workloads.base import Count, Effect, Figure, Interval, Outputs, Pair, Samples
from boardbench.workloads.llama_lines import Lines, Request

MIB, GIB = 1 << 20, 1 << 30
_BYTES = {"GiB": 1 / GIB, "MiB": 1 / MIB, "bytes": 1.0}
FIGURES: Mapping[str, Mapping[str, float]] = {
    "decode": {"tokens/s": 1.0},
    "decode-variation": {"percent": 1.0},
    "prefill": {"s": 1.0, "ms": 1000.0},
    "read": _BYTES,
    "read-device": _BYTES,
    "read-process": _BYTES,
    "perplexity": {"ppl": 1.0},
    "cache-hits": {"percent": 100.0},
    "gpu-floor": {"percent": 100.0},
    "server-start": {"s": 1.0},
}
"""Name -> unit -> what the base unit is multiplied by."""
UP_SHARE = 0.8
"""The floor rises at the first call and falls after the last one: at least so many looks in between must see it."""


def samples_of(lines: Lines) -> Samples:
    """All that the file declares."""
    requests = lines.requests
    intervals = tuple(
        Interval(index, r.start_s, r.end_s, r.predicted_tokens, r.predicted_tokens / (r.end_s - r.start_s))
        for index, r in enumerate(requests)
    )
    end = lines.end
    return Samples(
        unit="tokens",
        intervals=intervals,
        ended_by_itself=bool(end),
        end_reason=str(end.get("why") or "no reason given") if end else "",
        end_stamp=dict(end["stamp"]) if end else None,
        virtual=lines.start.get("virtual") is True,
        total=float(end["tokens"]) if isinstance(end.get("tokens"), int) else None,
        pairs=_pairs(requests),
        separate=True,
        planned=_count(lines.start.get("requests")),
        figures=_figures(lines),
        outputs=_outputs(lines) if requests else None,
        effects=tuple(_effects(lines)) if end and requests else (),
        # Two arms may well read the same bytes, but never take the same time to the nanosecond.
        counters=tuple(value for r in requests for value in (r.prompt_ms, r.predicted_ms)),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _pairs(requests: Sequence[Request]) -> tuple[Pair, ...]:
    if not requests:
        return ()
    said, came = sum(r.predicted_tokens for r in requests), sum(r.tokens for r in requests)
    pair = Pair("generated tokens", Count("server's timings", said, "tokens"), Count("answers", float(came), "tokens"))
    return (pair,)


def _outputs(lines: Lines) -> Outputs:
    model, perplexity = lines.start.get("model"), lines.perplexity
    model = model if isinstance(model, Mapping) else {}
    name = str(model.get("path", "?")).rsplit("/", 1)[-1]
    family = f"{name} of {model.get('size_bytes')} bytes, {lines.start.get('predict_tokens')} tokens, "
    value = perplexity.get("value")
    return Outputs(
        family=f"{family}prompts {str(lines.start.get('prompts_sha256'))[:8]}",
        texts={r.prompt: r.text_sha256 for r in lines.requests},
        perplexity=float(value) if isinstance(value, int | float) else None,
        perplexity_of=f"{perplexity.get('text_sha256')}/{perplexity.get('chunks')}/{perplexity.get('context_tokens')}",
    )


def _figures(lines: Lines) -> dict[str, Figure]:
    requests = lines.requests
    if not requests:
        return {name: Figure(None, "no request was answered") for name in FIGURES}
    rates = [r.predicted_tokens / r.predicted_ms * 1e3 for r in requests]
    device = _sum(requests, "device_read_bytes", lambda r: r.device_read_bytes)
    process = _sum(requests, "process_read_bytes", lambda r: r.process_read_bytes)
    return {
        "decode": Figure(sum(r.predicted_tokens for r in requests) / sum(r.predicted_ms for r in requests) * 1e3),
        "decode-variation": Figure(100 * stdev(rates) / fmean(rates))
        if len(rates) > 1
        else Figure(None, "one request has no variation"),
        "prefill": Figure(fmean(r.prompt_ms for r in requests) / 1e3),
        "read": device if device.value is not None else process,
        "read-device": device,
        "read-process": process,
        "perplexity": _reading(lines.perplexity, "value", "the run ended before it"),
        "cache-hits": _hits(lines.cache),
        "gpu-floor": _floor_share(requests),
        "server-start": _server_start(lines.ready),
    }


def _sum(requests: Sequence[Request], key: str, pick: Callable[[Request], float | None]) -> Figure:
    values = [pick(r) for r in requests]
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return Figure(sum(known))
    return Figure(None, next(r.missing[key] for r in requests if key in r.missing))


def _reading(event: Mapping[str, Any], key: str, otherwise: str) -> Figure:
    value = event.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Figure(float(value))
    return Figure(None, str(value.get("missing")) if isinstance(value, Mapping) else otherwise)


def _model_counters(cache: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The first model's counters, or why there are none."""
    counters = cache.get("counters")
    if not isinstance(counters, Mapping):
        return {}, "the run ended before it"
    models = counters.get("models")
    if isinstance(models, list) and models and isinstance(models[0], Mapping):
        return models[0], ""
    return {}, str(counters.get("missing") or "the counters name no model")


def _hits(cache: Mapping[str, Any]) -> Figure:
    found, why = _model_counters(cache)
    hits, misses = found.get("hits"), found.get("misses")
    if not isinstance(hits, int) or not isinstance(misses, int) or hits + misses == 0:
        return Figure(None, why or "the cache was not asked for an expert")
    return Figure(hits / (hits + misses))


def _floor_share(requests: Sequence[Request]) -> Figure:
    """The share of looks during requests at which the GPU's lowest clock stood above its lowest step."""
    up = looks = 0
    for request in requests:
        lowest, seen = request.gpu.get("lowest_hz"), request.gpu.get("min_hz")
        if not isinstance(lowest, int) or not isinstance(seen, Mapping):
            why = lowest.get("missing") if isinstance(lowest, Mapping) else request.gpu.get("missing")
            return Figure(None, str(why or "the GPU's clocks were not read"))
        looks += sum(seen.values())
        up += sum(count for hz, count in seen.items() if int(hz) > lowest)
    return Figure(up / looks) if looks else Figure(None, "not one look at the GPU's clocks")


def _server_start(ready: Mapping[str, Any]) -> Figure:
    start, end = ready.get("start_monotonic_s"), ready.get("ready_monotonic_s")
    if isinstance(start, int | float) and isinstance(end, int | float):
        return Figure(float(end) - float(start))
    return Figure(None, "the server was never ready")


def _effects(lines: Lines) -> list[Effect]:
    found: list[Effect] = []
    expected = lines.start.get("expect_floor")
    if expected in ("up", "down"):
        found.append(_floor_effect(str(expected), lines))
    budget = lines.start.get("cache_mib")
    if isinstance(budget, int) and budget > 0:
        found.append(_cache_effect(budget, lines))
    return found


def _cache_effect(budget: int, lines: Lines) -> Effect:
    counters, why = _model_counters(lines.cache)
    state, idle = counters.get("state"), lines.start.get("expect_cache") == "idle"
    if why:
        pass  # what is not known shows neither use nor rest
    elif idle:
        why = "" if state == "not served" else f"the expert cache is {state}, it should have found nothing to serve"
    elif state != "served":
        why = f"the expert cache is not in use: {counters.get('why') or state}"
    elif _hits(lines.cache).value is None:
        why = "no expert was asked for"
    saw = {"budget_mib": budget, "state": state, "hits": counters.get("hits"), "misses": counters.get("misses")}
    if idle:
        saw |= {"expected": "idle", "cache_says": counters.get("why")}
    return Effect("expert cache", {key: value for key, value in saw.items() if value is not None}, why)


def _floor_effect(expected: str, lines: Lines) -> Effect:
    share, status = _floor_share(lines.requests), lines.floor.get("status")
    said = dict(status) if isinstance(status, Mapping) else {"missing": "not asked"}
    saw: dict[str, object] = {"expected": expected, "gpu_floor": said}
    if share.value is None:
        return Effect("GPU floor", saw, f"the GPU's clocks are not known: {share.why}")
    saw["share_of_looks"] = round(share.value, 4)
    shown = f"the GPU's lowest clock was up in {100 * share.value:.0f} % of the looks"
    if expected == "down":
        return Effect("GPU floor", saw, "" if share.value == 0 else f"{shown}, it should have been down")
    if lines.start.get("virtual") is True and said.get("state") == "blind":
        # Not every host lets its virtual boards see calls, and they have no GPU: the rest of the arm is measured.
        saw["not_acting"] = "; ".join(map(str, said.get("problems") or ("gpu-floor is blind here",)))
        return Effect("GPU floor", saw)
    problems = said.get("missing") or "; ".join(map(str, said.get("problems") or ())) or said.get("state")
    why = "" if share.value >= UP_SHARE else f"{shown}, it should have been up (gpu-floor: {problems})"
    return Effect("GPU floor", saw, why)
