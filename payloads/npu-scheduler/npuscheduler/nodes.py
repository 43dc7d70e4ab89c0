"""What the scheduler knows of one node, and how its state follows from that. No I/O; time is passed in (seconds)."""

import collections
import math

from npuforge import npuforge_pb2 as pb

EWMA_WEIGHT = 0.2

Boot = collections.namedtuple("Boot", "boot_id first_seen_unix_ms")

# How much of a node a state leaves to ECT; a state that is not here is no candidate at all.
LOAD_FACTORS = {
    pb.NODE_STATE_HEALTHY: 1.0,
    pb.NODE_STATE_BUSY: 1.0,
    pb.NODE_STATE_DEGRADED: 0.5,
    pb.NODE_STATE_RECOVERING: 0.25,
}


# A node that boots more often than this has an older history that nobody reads.
MAX_BOOTS = 1000


class Node:
    """A node as long as it is known: `boots`, an operator's word and what is in flight outlive a registration."""

    def __init__(self, descriptor, boots, now_s):
        self.node_id = descriptor.node_id
        self.local_in_flight = 0
        self.boots = boots
        self.operator_state = None
        self.registrations = 0
        self.renew(descriptor, now_s)

    def renew(self, descriptor, now_s):
        """A registration: all that was measured or heard of the node before is gone."""
        self.registrations += 1
        self.descriptor = descriptor
        self.health = pb.NodeHealth()
        self.heard = False
        self.last_heartbeat_s = now_s
        self.last_heartbeat_unix_ms = 0
        self.ewma_inference_ms = None
        self.ewma_network_ms = None
        self.clock_offset_us = self.clock_error_us = None
        self.unreachable = False
        self.failures = 0
        self.successes = 0
        # Failures that silence has counted since the last heartbeat.
        self.missed = 0

    def ready_models(self):
        """Ids of the models that are ready."""
        return {model.id for model in self.descriptor.models if model.state == pb.MODEL_STATE_READY}

    @property
    def reboot_count(self):
        """Reboots that were seen; a boot id that is not known is none."""
        return max(0, len(self.boots) - 1)

    def saw_boot(self, boot_id, unix_ms):
        """Notes a boot id; whether it is a new life after another one."""
        if not boot_id or (self.boots and self.boots[-1].boot_id == boot_id):
            return False
        self.boots.append(Boot(boot_id, unix_ms))
        del self.boots[:-MAX_BOOTS]
        return len(self.boots) > 1

    def state(self, rules):
        """`NodeState` by the rules: what an operator said first, then reachability, then the last heartbeat."""
        if self.operator_state is not None:
            return self.operator_state
        if self.unreachable:
            return pb.NODE_STATE_RECOVERING if self.successes else pb.NODE_STATE_UNREACHABLE
        if not self.heard:
            return pb.NODE_STATE_REGISTERING
        return classify(self.health, rules)

    def excluded_because(self, rules):
        """Why it is no candidate now; "" when it is one."""
        state = self.state(rules)
        if state not in LOAD_FACTORS:
            return "its state is " + pb.NodeState.Name(state)[len("NODE_STATE_") :].lower()
        if self.health.has_temperature_c and self.health.temperature_c >= rules.disable_temperature_c:
            return f"{self.health.temperature_c:.1f} degC, the limit is {rules.disable_temperature_c:g}"
        return ""

    def failed(self, rules):
        """A heartbeat is missing, or a call could not be carried."""
        self.successes = 0
        self.failures += 1
        if self.failures >= rules.failures_to_unreachable:
            self.unreachable = True

    def succeeded(self, rules):
        """A heartbeat has come."""
        self.failures = 0
        if self.unreachable:
            self.successes += 1
            if self.successes >= rules.successes_to_healthy:
                self.unreachable = False
                self.successes = 0

    def silent(self, now_s, rules):
        """Counts the heartbeats that are overdue since the last one."""
        overdue_s = now_s - self.last_heartbeat_s - rules.timeout_s
        while overdue_s >= (self.missed + 1) * rules.interval_s:
            self.missed += 1
            self.failed(rules)

    def measured(self, inference_ms, network_ms):
        """Takes an answered request into the averages."""
        self.ewma_inference_ms = _ewma(self.ewma_inference_ms, inference_ms)
        self.ewma_network_ms = _ewma(self.ewma_network_ms, network_ms)


def _ewma(before, value):
    return value if before is None else (1.0 - EWMA_WEIGHT) * before + EWMA_WEIGHT * value


def sound(health):
    """The health without numbers that are none: a temperature of NaN is missing, an error rate of NaN is the worst."""
    if not math.isfinite(health.temperature_c):
        health.has_temperature_c = False
        health.temperature_c = 0.0
    if not 0.0 <= health.error_rate <= 1.0:
        health.error_rate = 1.0
    return health


def classify(health, rules):
    """The state that a heartbeat stands for."""
    if health.has_temperature_c and health.temperature_c >= rules.degraded_temperature_c:
        return pb.NODE_STATE_DEGRADED
    if health.error_rate > rules.degraded_error_rate:
        return pb.NODE_STATE_DEGRADED
    if health.queue_depth >= rules.busy_queue_depth:
        return pb.NODE_STATE_BUSY
    return pb.NODE_STATE_HEALTHY
