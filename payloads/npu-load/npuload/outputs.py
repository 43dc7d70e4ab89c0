"""Golden outputs: the same image twice on every node; unequal answers mean a backend that cannot be trusted."""

import hashlib


async def golden(scheduler, requests, numbers, nodes):
    """{"ok", "why", "outputs": {node: [sha256, sha256]}}: equal within each node and over all nodes of one model."""
    outputs, faults = {}, []
    for node in nodes:
        seen = []
        for _ in range(2):
            answer, data = await scheduler.infer_raw(0, requests.for_node(numbers.take(), node, slot=0))
            if answer.code != "NPF-0000" or answer.node != node:
                who = f"node {answer.node}" if answer.node and answer.node != node else answer.code
                faults.append(f"{node}: {who} answered: {answer.message}")
                break
            low, high = answer.result
            seen.append(hashlib.sha256(memoryview(data)[low:high]).hexdigest())
        outputs[node] = seen
        if len(set(seen)) > 1:
            faults.append(f"{node}: one image gave two outputs")
    if len({seen[0] for seen in outputs.values() if seen}) > 1:
        faults.append("the nodes give different outputs for one image")
    return {"ok": not faults, "why": "; ".join(faults), "outputs": outputs}
