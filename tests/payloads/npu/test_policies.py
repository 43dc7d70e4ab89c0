"""The three policies and the filter that they share."""

from __future__ import annotations

import collections
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from npuforge import npuforge_pb2 as pb
from npuscheduler.nodes import Node, sound
from npuscheduler.policies import POLICIES, Ect, LeastQueue, RoundRobin, candidates
from npuscheduler.settings import HealthRules

RULES = HealthRules(2.0, 1.0, 3, 3, 8, 0.10, 80.0, 90.0)
MODEL = "m"


def node(name: str, *, celsius: float | None = None, in_flight: int = 0, ready: bool = True, **health: float) -> Node:
    """A node in service that has `in_flight` requests of ours."""
    state = pb.MODEL_STATE_READY if ready else pb.MODEL_STATE_LOADING
    descriptor = pb.NodeDescriptor(node_id=name, models=[pb.ModelDescriptor(id=MODEL, state=state)])
    made = Node(descriptor, [], 0.0)
    made.health = pb.NodeHealth(**health)
    if celsius is not None:
        made.health.has_temperature_c, made.health.temperature_c = True, celsius
    made.heard = True
    made.local_in_flight = in_flight
    return made


def names(nodes: list[Node]) -> list[str]:
    return [node.node_id for node in nodes]


def test_the_filter_takes_nodes_in_service_that_are_cool_and_have_the_model() -> None:
    drained = node("drained")
    drained.operator_state = pb.NODE_STATE_DRAINING
    silent = node("silent")
    silent.unreachable = True
    unheard = node("unheard")
    unheard.heard = False
    nodes = [
        node("cool"), node("unknown", celsius=None), node("warm", celsius=89.99), node("hot", celsius=90.0),
        node("loading", ready=False), node("tried"), drained, silent, unheard,
    ]  # fmt: skip
    assert names(candidates(nodes, MODEL, RULES, ["tried"])) == ["cool", "unknown", "warm"]
    assert candidates(nodes, "other", RULES) == []
    assert names(candidates(nodes, MODEL, RULES, only="warm")) == ["warm"]
    assert candidates(nodes, MODEL, RULES, only="hot") == []


@pytest.mark.parametrize(
    ("health", "state"),
    [
        ({"celsius": 79.9}, pb.NODE_STATE_HEALTHY),
        ({"celsius": 80.0}, pb.NODE_STATE_DEGRADED),
        ({"error_rate": 0.10}, pb.NODE_STATE_HEALTHY),
        ({"error_rate": 0.11}, pb.NODE_STATE_DEGRADED),
        ({"queue_depth": 7}, pb.NODE_STATE_HEALTHY),
        ({"queue_depth": 8}, pb.NODE_STATE_BUSY),
        ({"queue_depth": 8, "celsius": 85.0}, pb.NODE_STATE_DEGRADED),
    ],
)
def test_a_heartbeat_stands_for_a_state(health: dict[str, float], state: int) -> None:
    assert node("n", **health).state(RULES) == state


def test_round_robin_takes_one_after_the_other() -> None:
    policy = RoundRobin(RULES, random.Random(1))
    nodes = [node("b"), node("a"), node("c")]
    assert [policy.choose(nodes).node_id for _ in range(4)] == ["a", "b", "c", "a"]


def test_least_queue_counts_our_requests_first_whatever_the_node_said() -> None:
    policy = LeastQueue(RULES, random.Random(1))
    assert policy.choose([node("a", in_flight=2), node("b", in_flight=1, queue_depth=7)]).node_id == "b"
    slow, fast, new = node("a"), node("b"), node("c")
    slow.measured(20.0, 0.0)
    fast.measured(10.0, 0.0)
    assert policy.choose([slow, fast, new]).node_id == "b"


def test_ect_is_the_expected_time_to_the_end() -> None:
    policy = Ect(RULES, random.Random(1))
    slow, fast = node("slow"), node("fast", in_flight=1)
    slow.measured(100.0, 5.0)
    fast.measured(40.0, 10.0)
    assert policy.score(slow, [slow, fast]) == pytest.approx(105.0)
    assert policy.score(fast, [slow, fast]) == pytest.approx(2 * 40 + 10)
    assert policy.choose([slow, fast]) is fast
    # A node without an answer yet counts as the mean of the others, without others as 50 ms.
    new = node("new")
    assert policy.score(new, [slow, fast, new]) == pytest.approx(70.0)
    assert policy.score(new, [new]) == pytest.approx(50.0)
    # Heat and errors cost time, and a degraded node has half the worth.
    hot = node("hot", celsius=85.0, error_rate=0.05)
    assert policy.score(hot, [hot]) == pytest.approx((50 + 50 + 10) / 0.5)
    assert policy.score(node("failing", error_rate=1.0), []) == pytest.approx((50 + 200) / 0.5)


@pytest.mark.parametrize("policy", [LeastQueue, Ect])
def test_equal_nodes_are_taken_at_random(policy: type) -> None:
    chooser = policy(RULES, random.Random(7))
    counts = collections.Counter(chooser.choose([node("a"), node("b"), node("c")]).node_id for _ in range(600))
    assert set(counts) == {"a", "b", "c"}
    assert min(counts.values()) > 140


HEALTH = st.builds(
    pb.NodeHealth,
    queue_depth=st.integers(0, 50),
    in_flight=st.integers(0, 50),
    error_rate=st.floats(),
    has_temperature_c=st.booleans(),
    temperature_c=st.floats(),
)


@given(st.lists(HEALTH, min_size=1, max_size=6), st.sampled_from(sorted(POLICIES)), st.booleans(), st.randoms())
def test_every_policy_chooses_a_candidate_whatever_the_nodes_say(
    healths: list[pb.NodeHealth], name: str, stale: bool, source: random.Random
) -> None:
    nodes = []
    for index, health in enumerate(healths):
        nodes.append(node(f"n{index}"))
        nodes[-1].health = sound(health)
    found = candidates(nodes, MODEL, RULES)
    if found:
        assert POLICIES[name](RULES, source, stale).choose(found) in found
    for one in nodes:
        hot = one.health.has_temperature_c and one.health.temperature_c >= 90
        assert (one in found) == (not hot)


@pytest.mark.parametrize("name", ["least-queue", "ect"])
def test_fresh_counts_spread_a_burst_and_stale_ones_send_it_to_one_node(name: str) -> None:
    def burst(stale: bool) -> collections.Counter[str]:
        policy = POLICIES[name](RULES, random.Random(3), stale)
        nodes = [node("a"), node("b"), node("c")]
        for one in nodes:
            one.measured(50.0, 1.0)
        chosen: collections.Counter[str] = collections.Counter()
        for _ in range(36):
            best = policy.choose(nodes)
            best.local_in_flight += 1
            chosen[best.node_id] += 1
        return chosen

    assert sorted(burst(stale=False).values()) == [12, 12, 12]
    assert burst(stale=True) == {"a": 36}
