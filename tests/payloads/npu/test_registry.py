"""The registry under any order of events: what is in flight is always counted right, and history is kept."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from npuforge import npuforge_pb2 as pb
from npuforge.codes import Code, Refusal
from npuscheduler.policies import LeastQueue
from npuscheduler.registry import MAX_NODES, Registry

from .test_policies import MODEL, RULES

NAMES = st.sampled_from(["king", "queen", "jack"])


def descriptor(name: str, port: int = 51001) -> pb.NodeDescriptor:
    models = [pb.ModelDescriptor(id=MODEL, state=pb.MODEL_STATE_READY)]
    return pb.NodeDescriptor(node_id=name, address=f"127.0.0.1:{port}", models=models)


def registry() -> Registry:
    return Registry(RULES, LeastQueue(RULES, random.Random(1)))


def health(boot: str = "b1", celsius: float = 50.0) -> pb.NodeHealth:
    return pb.NodeHealth(boot_id=boot, has_temperature_c=True, temperature_c=celsius)


def beat(nodes: Registry, name: str, now_s: float = 0.0, **values: object) -> bool:
    node, rebooted = nodes.heartbeat(name, health(**values), now_s, int(now_s * 1000))  # type: ignore[arg-type]
    assert node is not None
    return rebooted


class Life(RuleBasedStateMachine):
    """Nodes register, beat, reboot, fall silent, leave; requests are reserved and released."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = registry()
        self.now_s = 0.0
        self.open: list = []
        self.boots: dict[str, list[str]] = {}

    @rule(name=NAMES, port=st.integers(1, 3))
    def register(self, name: str, port: int) -> None:
        self.nodes.register(descriptor(name, port), self.now_s)

    @rule(name=NAMES, boot=st.sampled_from(["", "b1", "b2"]), celsius=st.sampled_from([50.0, 85.0, 90.0, float("nan")]))
    def heartbeat(self, name: str, boot: str, celsius: float) -> None:
        node, rebooted = self.nodes.heartbeat(name, health(boot, celsius), self.now_s, 0)
        if node is None:
            return
        seen = self.boots.setdefault(name, [])
        new = bool(boot) and (not seen or seen[-1] != boot)
        assert rebooted == (new and bool(seen))
        if new:
            seen.append(boot)

    @rule(name=NAMES)
    def deregister(self, name: str) -> None:
        self.nodes.deregister(name)

    @rule(name=NAMES, action=st.sampled_from([1, 2, 3]))
    def order(self, name: str, action: int) -> None:
        if self.nodes.get(name):
            self.nodes.order(name, action)

    @rule(seconds=st.floats(0.1, 10.0))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.nodes.tick(self.now_s)

    @rule(without=st.lists(NAMES, max_size=2))
    def reserve(self, without: list[str]) -> None:
        candidates = [
            node for node in self.nodes.all() if node.node_id not in without and not node.excluded_because(RULES)
        ]
        if not candidates:
            with pytest.raises(Refusal) as refusal:
                self.nodes.reserve(MODEL, without)
            assert refusal.value.code == Code.NO_AVAILABLE_NODE
            return
        reservation = self.nodes.reserve(MODEL, without)
        node = reservation.node
        assert node in candidates
        # Least queue: nobody else had fewer.
        assert node.local_in_flight - 1 <= min(one.local_in_flight for one in candidates)
        self.open.append(reservation)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), twice=st.booleans())
    def release(self, data: st.DataObject, twice: bool) -> None:
        reservation = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        for _ in range(1 + twice):
            reservation.release()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.nodes.failed(data.draw(st.sampled_from(self.open)))

    @invariant()
    def in_flight_is_what_is_open(self) -> None:
        for node in self.nodes.all():
            assert node.local_in_flight == sum(one.node is node for one in self.open)

    @invariant()
    def boots_are_what_was_seen(self) -> None:
        for status in self.nodes.statuses():
            name = status.descriptor.node_id
            assert [boot.boot_id for boot in status.boots] == self.boots.get(name, [])
            assert status.reboot_count == max(0, len(self.boots.get(name, [])) - 1)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_registration_again_keeps_boots_an_operators_word_and_what_is_in_flight() -> None:
    nodes = registry()
    nodes.register(descriptor("king"), 0.0)
    beat(nodes, "king")
    reservation = nodes.reserve(MODEL)
    nodes.order("king", pb.DRAIN_ACTION_DRAIN)
    node = nodes.register(descriptor("king", 51002), 1.0)
    assert node.descriptor.address == "127.0.0.1:51002"
    assert (node.local_in_flight, node.operator_state) == (1, pb.NODE_STATE_DRAINING)
    assert beat(nodes, "king", 1.0, boot="b2")
    reservation.release()
    assert (node.local_in_flight, node.reboot_count) == (0, 1)
    # Also over a time in which it was gone.
    nodes.deregister("king")
    nodes.register(descriptor("king"), 2.0)
    assert nodes.statuses()[0].reboot_count == 1


def test_a_boot_id_that_is_missing_is_no_reboot() -> None:
    nodes = registry()
    nodes.register(descriptor("king"), 0.0)
    assert [beat(nodes, "king", boot=boot) for boot in ("b1", "", "b1", "b2")] == [False, False, False, True]
    assert nodes.statuses()[0].reboot_count == 1


def test_three_failures_make_a_node_unreachable_and_three_heartbeats_bring_it_back() -> None:
    nodes = registry()
    node = nodes.register(descriptor("king"), 0.0)
    beat(nodes, "king")
    held = nodes.reserve(MODEL)
    states = []
    for _ in range(3):
        nodes.failed(held)
        states.append(node.state(RULES))
    assert states == [pb.NODE_STATE_HEALTHY, pb.NODE_STATE_HEALTHY, pb.NODE_STATE_UNREACHABLE]
    states = []
    for _ in range(3):
        beat(nodes, "king")
        states.append(node.state(RULES))
    assert states == [pb.NODE_STATE_RECOVERING, pb.NODE_STATE_RECOVERING, pb.NODE_STATE_HEALTHY]


def test_silence_counts_as_failures() -> None:
    nodes = registry()
    node = nodes.register(descriptor("king"), 0.0)
    beat(nodes, "king", 0.0)
    # Overdue after interval + time-out, then once an interval.
    for now_s, failures in ((2.9, 0), (3.0, 1), (4.9, 1), (5.0, 2), (7.0, 3)):
        nodes.tick(now_s)
        assert node.failures == failures
    assert node.state(RULES) == pb.NODE_STATE_UNREACHABLE


def test_a_new_registration_is_in_service_with_its_first_heartbeat() -> None:
    nodes = registry()
    node = nodes.register(descriptor("king"), 0.0)
    beat(nodes, "king")
    held = nodes.reserve(MODEL)
    for _ in range(3):
        nodes.failed(held)
    assert node.state(RULES) == pb.NODE_STATE_UNREACHABLE
    nodes.register(descriptor("king"), 1.0)
    assert node.state(RULES) == pb.NODE_STATE_REGISTERING
    beat(nodes, "king", 1.0)
    assert node.state(RULES) == pb.NODE_STATE_HEALTHY
    # What was under way in its old life may still fail, and says nothing of the new one.
    for _ in range(3):
        nodes.failed(held)
    assert (node.state(RULES), node.failures) == (pb.NODE_STATE_HEALTHY, 0)


def test_a_burst_from_many_threads_is_spread_evenly() -> None:
    nodes = registry()
    for name in ("king", "queen", "jack"):
        nodes.register(descriptor(name), 0.0)
        beat(nodes, name)
    threads = [threading.Thread(target=lambda: [nodes.reserve(MODEL) for _ in range(30)]) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [node.local_in_flight for node in nodes.all()] == [100, 100, 100]


@pytest.mark.parametrize("address", ["", "king", "king:", ":51001", "king:0", "king:99999", "king:x"])
def test_a_node_without_an_address_to_call_is_refused(address: str) -> None:
    with pytest.raises(Refusal):
        registry().register(pb.NodeDescriptor(node_id="king", address=address), 0.0)


def test_there_is_an_end_to_how_many_nodes_and_histories_are_kept() -> None:
    nodes = registry()
    for index in range(3 * MAX_NODES):
        nodes.register(descriptor(f"n{index}"), 0.0)
        nodes.deregister(f"n{index}")
    assert len(nodes._boots) <= MAX_NODES + 1
    for index in range(MAX_NODES):
        nodes.register(descriptor(f"m{index}"), 0.0)
    with pytest.raises(Refusal, match="1024 nodes already"):
        nodes.register(descriptor("one-more"), 0.0)
