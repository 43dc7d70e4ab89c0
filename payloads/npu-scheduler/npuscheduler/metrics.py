"""Counters of the scheduler, and the text that Prometheus reads (exposition format 0.0.4)."""

import bisect
import collections

from npuforge import npuforge_pb2 as pb

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """What has happened since the start."""

    def __init__(self):
        self.requests = collections.Counter()
        self.by_node = collections.Counter()
        self.retries = 0
        self._buckets = [0] * (len(BUCKETS_S) + 1)
        self._seconds = 0.0
        self._payload_bytes = collections.Counter()

    def request_ended(self, code, seconds, bytes_in, bytes_out):
        """A client's request was answered."""
        self.requests[code.value] += 1
        self._buckets[bisect.bisect_left(BUCKETS_S, seconds)] += 1
        self._seconds += seconds
        self._payload_bytes["in"] += bytes_in
        self._payload_bytes["out"] += bytes_out

    def node_answered(self, node_id, code):
        """A try at a node ended."""
        self.by_node[node_id, code.value] += 1

    def retried(self):
        """A request goes to another node."""
        self.retries += 1

    @property
    def total(self):
        """Requests answered."""
        return sum(self.requests.values())

    @property
    def errors(self):
        """Requests answered with an error."""
        return self.total - self.requests["NPF-0000"]

    def text(self, statuses, policy, now_unix_ms):
        """All series, with the nodes as `statuses` say."""
        lines = []
        _family(lines, "npu_scheduler_info", "gauge", "The policy in force.", [({"policy": policy}, 1)])
        _family(lines, "npu_requests_total", "counter", "Requests answered, by code.",
                [({"code": code}, count) for code, count in sorted(self.requests.items())])  # fmt: skip
        _family(lines, "npu_node_tries_total", "counter", "Tries at nodes, by code.",
                [({"node": key[0], "code": key[1]}, count) for key, count in sorted(self.by_node.items())])  # fmt: skip
        _family(lines, "npu_retries_total", "counter", "Requests that went on to another node.", [({}, self.retries)])
        _family(lines, "npu_message_bytes_total", "counter", "Bytes of Infer messages, by direction.",
                [({"direction": name}, count) for name, count in sorted(self._payload_bytes.items())])  # fmt: skip
        self._histogram(lines)
        _nodes(lines, statuses, now_unix_ms)
        return "\n".join(lines) + "\n"

    def _histogram(self, lines):
        name, rows, below = "npu_request_seconds", [], 0
        for bound, count in zip((*BUCKETS_S, "+Inf"), self._buckets):
            below += count
            rows.append(("_bucket", {"le": bound}, below))
        rows += [("_sum", {}, self._seconds), ("_count", {}, below)]
        lines.append(f"# HELP {name} Time from a request's arrival to its answer.")
        lines.append(f"# TYPE {name} histogram")
        lines.extend(_line(name + suffix, labels, value) for suffix, labels, value in rows)


def _nodes(lines, statuses, now_unix_ms):
    for name, kind, about, value in (
        ("npu_node_in_flight", "gauge", "Requests of this scheduler at the node.", lambda s: s.local_in_flight),
        ("npu_node_queue_depth", "gauge", "Requests that wait in the node.", lambda s: s.health.queue_depth),
        ("npu_node_candidate", "gauge", "1: may have requests.", lambda s: int(not s.excluded_because)),
        ("npu_node_reboots_total", "counter", "Reboots that the scheduler saw.", lambda s: s.reboot_count),
        ("npu_node_error_ratio", "gauge", "Errors among the node's last inferences.", lambda s: s.health.error_rate),
        ("npu_node_temperature_celsius", "gauge", "SoC temperature.",
         lambda s: s.health.temperature_c if s.health.has_temperature_c else None),
        ("npu_node_inference_milliseconds", "gauge", "Moving average of the inference.",
         lambda s: s.ewma_inference_ms if s.has_ewma_inference_ms else None),
        ("npu_node_network_milliseconds", "gauge", "Moving average of what is not the node's own time.",
         lambda s: s.ewma_network_ms if s.has_ewma_network_ms else None),
        ("npu_node_heartbeat_age_seconds", "gauge", "Since the last heartbeat.",
         lambda s: (now_unix_ms - s.last_heartbeat_unix_ms) / 1000 if s.last_heartbeat_unix_ms else None),
    ):  # fmt: skip
        # A value that is missing has no line.
        rows = [({"node": s.descriptor.node_id}, value(s)) for s in statuses if value(s) is not None]
        _family(lines, name, kind, about, rows)
    states = [
        ({"node": s.descriptor.node_id, "state": name[len("NODE_STATE_") :].lower()}, int(s.state == number))
        for s in statuses
        for name, number in pb.NodeState.items()
        if number
    ]
    _family(lines, "npu_node_state", "gauge", "1 for the state that the node is in.", states)


def _family(lines, name, kind, about, rows):
    lines.append(f"# HELP {name} {about}")
    lines.append(f"# TYPE {name} {kind}")
    lines.extend(_line(name, labels, value) for labels, value in rows)


def _line(name, labels, value):
    told = ",".join(f'{key}="{_escaped(str(text))}"' for key, text in labels.items())
    return f"{name}{{{told}}} {value}" if told else f"{name} {value}"


def _escaped(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
