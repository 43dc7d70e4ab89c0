"""Golden outputs: one image twice on every node, before any load; unequal answers mean a backend that lies fast.

A shared context of the NPU's runtime once gave wrong outputs for all requests of a run, and not one error: whoever
counts answers alone measures that as throughput.
"""

import collections
import hashlib

from npuforge import tensors

TIMES = 2
# A scheduler that does not know how to be asked for one node answers by whichever comes next: asked again, so often.
TRIES_PER_NODE = 8


async def golden(scheduler, requests, numbers, nodes, model):
    """What the nodes make of one image; `nodes`: their `NodeStatus`.

    {"ok", "why", "outputs": {node: [sha256, ...]}, "groups": [{"model_sha256", "backend", "nodes"}]}: outputs must be
    equal within each node, and over all nodes of a group, which have the same model in the same kind of backend. A
    node is told by the id that its answers carry, never by who was asked.
    """
    names = sorted(node.descriptor.node_id for node in nodes)
    outputs, faults = {name: [] for name in names}, {}
    for name in names:
        tries = TRIES_PER_NODE * len(names)
        while len(outputs[name]) < TIMES and name not in faults and tries:
            tries -= 1
            who, digest, fault = await _ask(scheduler, requests, numbers.take(), name)
            if who not in outputs:
                faults[name] = f"the node '{who}' answered for it, which is none of those that are here"
            elif fault:
                faults[who] = fault
            elif len(outputs[who]) < TIMES:
                outputs[who].append(digest)
        if len(outputs[name]) < TIMES:
            faults.setdefault(name, "no answer of it came: the scheduler gives all requests to others")
    groups = _groups(nodes, model)
    said = [f"{name}: {fault}" for name, fault in sorted(faults.items())]
    said += [f"{name}: one image gave two outputs" for name in names if len(set(outputs[name])) > 1]
    for group in groups:
        # Without a node's own unrest: that is said already.
        first = {name: outputs[name][0] for name in group["nodes"] if len(set(outputs[name])) == 1}
        said += _differences(first)
    return {"ok": not said, "why": "; ".join(said), "outputs": outputs, "groups": groups}


async def _ask(scheduler, requests, number, node):
    """(who answered, the hash of its tensors, why there is none)."""
    answer, data = await scheduler.infer_raw(0, requests.for_node(number, node, slot=0))
    who = answer.node or node
    if answer.code != "NPF-0000":
        return who, "", f"{answer.code} {answer.message}".strip()
    low, high = answer.result
    try:
        tensors.parse(memoryview(data)[low:high])
    except tensors.BlobError as error:
        return who, "", str(error)
    return who, hashlib.sha256(memoryview(data)[low:high]).hexdigest(), ""


def _groups(nodes, model):
    found = {}
    for node in nodes:
        about = node.descriptor
        sha256 = next((one.sha256 for one in about.models if one.id == model), "")
        found.setdefault((sha256, about.backend or about.npu_type), []).append(about.node_id)
    return [
        {"model_sha256": sha256, "backend": backend, "nodes": sorted(names)}
        for (sha256, backend), names in sorted(found.items())
    ]


def _differences(first):
    """Who gives another output than most; where no output is that of most, all who differ."""
    counts = collections.Counter(first.values())
    if len(counts) < 2:
        return []
    common, count = counts.most_common(1)[0]
    same = sorted(name for name, digest in first.items() if digest == common)
    if 2 * count <= len(first):
        return [f"{', '.join(sorted(first))}: their outputs for one image differ"]
    return [
        f"{name}: its output is not that of {', '.join(same)} for the same image"
        for name in sorted(first)
        if name not in same
    ]
