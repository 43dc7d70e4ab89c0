"""Which of the candidates gets the next request. Pure: nodes in, one node out.

All policies share the candidate filter, and look at the requests that this scheduler has at a node now. In stale mode
they look at the queue as the last heartbeat told it, and equal ones are taken in the order of their ids: that is how
all requests once went to the same node until the next heartbeat, and the trap shows it again.
"""

import abc
import math

from npuscheduler.nodes import LOAD_FACTORS

# What a node is thought to need when none has answered yet.
UNKNOWN_INFERENCE_MS = 50.0
HOT_MS = 100.0
ERROR_MS = 200.0


class RoundRobin:
    """One after the other, in the order of their ids."""

    name = "round-robin"

    def __init__(self, rules, random, stale=False):
        self._next = 0

    def choose(self, nodes):
        """The next of the candidates."""
        node = sorted(nodes, key=lambda node: node.node_id)[self._next % len(nodes)]
        self._next += 1
        return node


class _Lowest(abc.ABC):
    def __init__(self, rules, random, stale=False):
        self._rules, self._random, self._stale = rules, random, stale

    def choose(self, nodes):
        """The candidate with the lowest score; among equals a random one."""
        scores = [(self.score(node, nodes), node) for node in nodes]
        lowest = min(score for score, _ in scores)
        equal = [node for score, node in scores if score == lowest]
        if self._stale:
            return min(equal, key=lambda node: node.node_id)
        return equal[0] if len(equal) == 1 else self._random.choice(equal)

    @abc.abstractmethod
    def score(self, node, nodes):
        """What is compared; lower is better."""


class LeastQueue(_Lowest):
    """Fewest requests first; then what the node said of itself, then the faster one."""

    name = "least-queue"

    def score(self, node, nodes):
        """(ours at the node, its queue, its workers in use, its mean inference)."""
        ours = 0 if self._stale else node.local_in_flight
        mean_ms = math.inf if node.ewma_inference_ms is None else node.ewma_inference_ms
        return ours, node.health.queue_depth, node.health.in_flight, mean_ms


class Ect(_Lowest):
    """Expected completion time: what is there, times what one needs, plus the way, heat and errors."""

    name = "ect"

    def score(self, node, nodes):
        """Milliseconds, stretched where the node's state leaves less of it."""
        rules = self._rules
        before = node.health.queue_depth + node.health.in_flight if self._stale else node.local_in_flight
        span = rules.disable_temperature_c - rules.degraded_temperature_c
        heat = 0.0
        if node.health.has_temperature_c:
            over = node.health.temperature_c - rules.degraded_temperature_c
            heat = HOT_MS * (min(1.0, max(0.0, over / span)) if span > 0 else float(over >= 0))
        total_ms = (
            (before + 1) * _inference_ms(node, nodes)
            + (node.ewma_network_ms or 0.0)
            + heat
            + ERROR_MS * node.health.error_rate
        )
        return total_ms / LOAD_FACTORS[node.state(rules)]


def _inference_ms(node, nodes):
    if node.ewma_inference_ms is not None:
        return node.ewma_inference_ms
    known = [other.ewma_inference_ms for other in nodes if other.ewma_inference_ms is not None]
    return sum(known) / len(known) if known else UNKNOWN_INFERENCE_MS


POLICIES = {policy.name: policy for policy in (RoundRobin, LeastQueue, Ect)}


def candidates(nodes, model_id, rules, without=(), only=None):
    """The nodes that may have the request: in service, cool enough, with the model, not tried yet."""
    return [
        node
        for node in nodes
        if node.node_id not in without
        and (only is None or node.node_id == only)
        and not node.excluded_because(rules)
        and model_id in node.ready_models()
    ]
