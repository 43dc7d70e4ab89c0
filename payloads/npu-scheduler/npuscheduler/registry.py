"""All nodes, and the one lock under which a node is chosen and the choice is counted.

Between looking at the nodes and counting the request nothing else can look: else all requests of a moment see the same
numbers and go to the same node. No I/O; time is passed in.
"""

import threading

from npuforge import npuforge_pb2 as pb
from npuforge.codes import Code, Refusal
from npuscheduler.nodes import Node, sound
from npuscheduler.policies import candidates

MAX_NODES = 1024
_OPERATOR_STATES = {
    pb.DRAIN_ACTION_DRAIN: pb.NODE_STATE_DRAINING,
    pb.DRAIN_ACTION_DISABLE: pb.NODE_STATE_DISABLED,
    pb.DRAIN_ACTION_RESUME: None,
}


class Reservation:
    """A request that is counted at a node until `release`, which may come more than once and counts once."""

    def __init__(self, lock, node):
        self._lock = lock
        self.node = node
        self.registration = node.registrations
        self._open = True

    def release(self):
        """The node has one less."""
        with self._lock:
            if self._open:
                self._open = False
                self.node.local_in_flight -= 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class Registry:
    """The nodes by id. Every method holds the lock for as long as it looks or changes."""

    def __init__(self, rules, policy):
        self.rules, self.policy = rules, policy
        self._lock = threading.Lock()
        self._nodes = {}
        # Of nodes that have left, too: a node that comes back has the same history.
        self._boots = {}

    def register(self, descriptor, now_s):
        """Takes a node in, or again: an operator's word and the boots stay, all else is new. Refusal when it cannot."""
        if not descriptor.node_id or len(descriptor.node_id) > 64:
            raise Refusal(Code.INVALID_REQUEST, "a node id has 1 to 64 characters")
        host, _, port = descriptor.address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise Refusal(Code.INVALID_REQUEST, f"'{descriptor.address}' is no address of a node (host:port)")
        with self._lock:
            before = self._nodes.get(descriptor.node_id)
            if before is None and len(self._nodes) >= MAX_NODES:
                raise Refusal(Code.INVALID_REQUEST, f"there are {MAX_NODES} nodes already")
            if before is not None:
                before.renew(descriptor, now_s)
                return before
            node = Node(descriptor, self._history(descriptor.node_id), now_s)
            self._nodes[descriptor.node_id] = node
            return node

    def _history(self, node_id):
        boots = self._boots.pop(node_id, [])
        self._boots[node_id] = boots
        gone = [name for name in self._boots if name not in self._nodes and name != node_id]
        # The oldest of those that left go first, when there are too many to keep.
        for name in gone[: max(0, len(gone) - MAX_NODES)]:
            del self._boots[name]
        return boots

    def heartbeat(self, node_id, health, now_s, unix_ms):
        """Takes a heartbeat in; (the node, whether it has rebooted), (None, False) when it is not known."""
        with self._lock:
            node = self._nodes.get(node_id)
            if node is None:
                return None, False
            rebooted = node.saw_boot(health.boot_id, unix_ms)
            node.health = sound(health)
            node.heard = True
            node.last_heartbeat_s, node.last_heartbeat_unix_ms, node.missed = now_s, unix_ms, 0
            node.succeeded(self.rules)
            return node, rebooted

    def deregister(self, node_id):
        """Takes a node out; it, or None when it is not known."""
        with self._lock:
            return self._nodes.pop(node_id, None)

    def order(self, node_id, action):
        """An operator's word; the node. Refusal when there is no such node or action."""
        if action not in _OPERATOR_STATES:
            raise Refusal(Code.INVALID_REQUEST, "an action is drain, disable or resume")
        with self._lock:
            node = self._nodes.get(node_id)
            if node is None:
                raise Refusal(Code.INVALID_REQUEST, f"there is no node '{node_id}'")
            node.operator_state = _OPERATOR_STATES[action]
            return node

    def reserve(self, model_id, without=(), only=None):
        """Chooses a node and counts the request there, in one. Refusal when there is no candidate."""
        with self._lock:
            found = candidates(self._nodes.values(), model_id, self.rules, without, only)
            if not found:
                raise self._nobody(model_id, only)
            node = self.policy.choose(found)
            node.local_in_flight += 1
            return Reservation(self._lock, node)

    def _nobody(self, model_id, only):
        known = any(model_id == model.id for node in self._nodes.values() for model in node.descriptor.models)
        if self._nodes and not known:
            return Refusal(Code.MODEL_NOT_FOUND, f"no node has the model '{model_id}'")
        which = f"the node '{only}'" if only is not None else "any node"
        return Refusal(Code.NO_AVAILABLE_NODE, f"{which} is not available for the model '{model_id}'")

    def failed(self, reservation):
        """The call could not be carried; what began before the node's last registration says nothing of it now."""
        with self._lock:
            if reservation.registration == reservation.node.registrations:
                reservation.node.failed(self.rules)

    def answered(self, node, inference_ms, network_ms):
        """A request was answered."""
        with self._lock:
            node.measured(inference_ms, network_ms)

    def tick(self, now_s):
        """Counts the heartbeats that are overdue."""
        with self._lock:
            for node in self._nodes.values():
                node.silent(now_s, self.rules)

    def get(self, node_id):
        """The node, or None."""
        with self._lock:
            return self._nodes.get(node_id)

    def all(self):
        """The nodes by id."""
        with self._lock:
            return [self._nodes[node_id] for node_id in sorted(self._nodes)]

    def statuses(self):
        """`NodeStatus` of every node, by id; changes nothing."""
        with self._lock:
            return [status(self._nodes[node_id], self.rules) for node_id in sorted(self._nodes)]


def status(node, rules):
    """`NodeStatus` of a node."""
    made = pb.NodeStatus(
        descriptor=node.descriptor,
        state=node.state(rules),
        health=node.health,
        reboot_count=node.reboot_count,
        local_in_flight=node.local_in_flight,
        boots=[pb.Boot(boot_id=boot.boot_id, first_seen_unix_ms=boot.first_seen_unix_ms) for boot in node.boots],
        excluded_because=node.excluded_because(rules),
        last_heartbeat_unix_ms=node.last_heartbeat_unix_ms,
    )
    for name in ("ewma_inference_ms", "ewma_network_ms", "clock_offset_us"):
        value = getattr(node, name)
        if value is not None:
            setattr(made, "has_" + name, True)
            setattr(made, name, value)
    return made
