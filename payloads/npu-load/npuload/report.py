"""The report of a load: the rig's fields with the rig's meanings, and ours beside them."""

from npuload.intervals import latency_us
from npuload.latencies import summary
from npuload.requests import LEGS, MISSING_US, STAGES

FORMAT_VERSION = 1
NOT_MEASURED = "not measured"
# The scheduler makes these two from one residual, half each; they are no legs that were measured.
HALVES = ("network_to_node", "network_to_client")
# A 0 of these is a stage that was there and took less than a microsecond; a 0 of any other one was never filled in.
WHOLE = ("scheduler_route", "node_queue", "inference", "end_to_end")
CAVEATS = (
    "A closed loop holds back requests while answers are slow: its latencies compare configurations and are no promise "
    "to users.",
    "network_to_node and network_to_client are halves of one residual (the scheduler's call minus the node's own "
    "time), not measured legs; the legs are under stages, where clocks could be compared.",
    "Percentiles are of all requests of this one run, by nearest rank. Over several runs, a pooled percentile is taken "
    "from all their requests; a mean of runs' percentiles is another number, and must be called run-level.",
)


def summary_of(samples, duration_s):
    """The rig's `summary`. Throughput, latency and shares from successes alone; no successes: null, not 0."""
    good = samples.good()
    codes = samples.codes.list()
    errors = {}
    for code in samples.code:
        if code:
            errors[codes[code]] = errors.get(codes[code], 0) + 1
    inference = [samples.stages["inference"][place] for place in good]
    total = len(samples)
    return {
        "total_requests": total,
        "succeeded": len(good),
        "failed": total - len(good),
        "error_rate": (total - len(good)) / total if total else None,
        "duration_s": duration_s,
        "throughput": len(good) / duration_s if duration_s > 0 else None,
        "latency": summary(latency_us(samples, good)),
        "node_inference": summary([value for value in inference if value != MISSING_US]),
        "per_node": [
            {
                "node_id": node,
                "count": len(places),
                "share": len(places) / len(good),
                "latency": summary(latency_us(samples, places)),
            }
            for node, places in _by_node(samples, good)
        ],
        "errors_by_code": [[code, count] for code, count in sorted(errors.items())],
        "retried": sum(samples.attempts[place] > 1 for place in good),
        "stage_breakdown": _rig_stages(samples, good),
    }


def _by_node(samples, places):
    """(node, its places) of these requests, sorted by node."""
    names, found = samples.nodes.list(), {}
    for place in places:
        found.setdefault(names[samples.node[place]], []).append(place)
    return sorted(found.items())


def steady_per_node(samples, begin_s, end_s):
    """Per node the latencies of requests from the last third of the load: what it came to on boards that it heats."""
    from_s = end_s - (end_s - begin_s) / 3
    late = [place for place in samples.good() if samples.intended_s[place] >= from_s]
    return [
        {"node_id": node, "count": len(places), "latency": summary(latency_us(samples, places))}
        for node, places in _by_node(samples, late)
    ]


def _rig_stages(samples, good):
    if not good:
        return None
    found = {}
    for name in STAGES:
        values = [samples.stages[name][place] for place in good]
        found[name] = summary([value for value in values if value != MISSING_US])
    return found


def stages(samples):
    """Every stage of a request's way: its summary over the successes, or why there is none.

    `client_to_scheduler`: latency from sending less the scheduler's end_to_end, both ways and the client's own time.
    """
    good = samples.good()
    found = {}
    for name in (*STAGES, *LEGS):
        values = [value for value in (samples.stages[name][place] for place in good) if value != MISSING_US]
        if name in HALVES:
            found[name] = f"{NOT_MEASURED}: half of a residual (see residual)"
        elif not values:
            found[name] = f"{NOT_MEASURED}: no answer carries it"
        elif name not in (*WHOLE, *LEGS) and not any(values):
            found[name] = f"{NOT_MEASURED}: always 0, nobody fills it in"
        else:
            found[name] = summary(values)
    residual = [sum(max(0, samples.stages[name][place]) for name in HALVES) for place in good]
    found["residual"] = summary(residual) if any(residual) else NOT_MEASURED
    outside = [
        round((samples.ended_s[place] - samples.sent_s[place]) * 1e6) - samples.stages["end_to_end"][place]
        for place in good
        if samples.stages["end_to_end"][place] > 0
    ]
    found["client_to_scheduler"] = summary(outside) or f"{NOT_MEASURED}: no answer carries end_to_end"
    return found


def verdict(samples, before, after, max_error_rate, min_samples):
    """Every reason why the run does not count; none: it is valid."""
    reasons = []
    boots = {node["node_id"]: node["boot_id"] for node in before}
    boots_after = {node["node_id"]: node["boot_id"] for node in after}
    for node, boot in sorted(boots.items()):
        if node not in boots_after:
            reasons.append({"kind": "node-disappeared", "node_id": node})
        elif boots_after[node] != boot:
            reasons.append({"kind": "node-rebooted", "node_id": node, "before": boot, "after": boots_after[node]})
    reasons += [{"kind": "node-appeared", "node_id": node} for node in sorted(set(boots_after) - set(boots))]
    total, succeeded = len(samples), len(samples.good())
    error_rate = (total - succeeded) / total if total else 1.0
    if error_rate > max_error_rate:
        reasons.append({"kind": "error-rate-too-high", "observed": error_rate, "limit": max_error_rate})
    if succeeded < min_samples:
        reasons.append({"kind": "too-few-samples", "observed": succeeded, "required": min_samples})
    return {"valid": not reasons, "reasons": reasons}


def longest_silence(samples, begin_s, end_s):
    """Per node: the longest time inside the load without a good answer from it, in seconds."""
    names = samples.nodes.list()
    last, found = {}, {}
    for place in samples.good():
        name, ended_s = names[samples.node[place]], samples.ended_s[place]
        found[name] = max(found.get(name, 0.0), ended_s - last.get(name, begin_s))
        last[name] = ended_s
    return {name: max(found[name], end_s - last[name]) for name in sorted(found)}


def littles_law(samples, throughput):
    """Rate x mean latency: how many requests were under way on average; None without successes."""
    good = samples.good()
    if not good or throughput is None:
        return None
    mean_s = sum(samples.ended_s[place] - samples.sent_s[place] for place in good) / len(good)
    return {"rate_per_s": throughput, "mean_latency_s": mean_s, "under_way": throughput * mean_s}
