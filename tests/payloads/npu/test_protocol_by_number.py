"""The protocol as it lies on the wire: every field by its number, written down by hand."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from npuforge import npuforge_pb2 as pb
from npuforge.codes import RETRYABLE, Code, from_node

PROTO = Path(pb.__file__).with_name("npuforge.proto")

# name: (kind, field names from number 1 on); "u" varint, "s" string or bytes, "b" bool, "d" double, "m" message
HAS = ("temperature_c", "cpu_percent", "memory_percent", "npu_percent", "input_voltage_v")
MESSAGES = {
    "Timing": [
        ("u", name)
        for name in (
            "scheduler_queue_us", "scheduler_route_us", "network_to_node_us", "node_queue_us", "decode_us",
            "preprocess_us", "npu_input_us", "inference_us", "postprocess_us", "network_to_client_us", "end_to_end_us",
        )
    ],
    "ModelDescriptor": [("s", "id"), ("s", "version"), ("u", "state"), ("s", "sha256")],
    "NodeDescriptor": [
        ("s", "node_id"), ("s", "hostname"), ("s", "address"), ("s", "device_type"), ("s", "npu_type"),
        ("u", "npu_core_count"), ("u", "memory_bytes"), ("s", "agent_version"), ("s", "runtime_version"),
        ("m", "models"),
    ],
    "NodeHealth": [
        ("u", "queue_depth"), ("u", "in_flight"), ("d", "error_rate"),
        *[pair for name in HAS for pair in (("b", "has_" + name), ("d", name))], ("s", "boot_id"),
    ],
    "InferRequest": [
        ("s", "request_id"), ("s", "model_id"), ("s", "payload"), ("u", "input_format"), ("u", "priority"),
        ("u", "deadline_unix_ms"), ("m", "metadata"),
    ],
    "InferResponse": [
        ("s", "request_id"), ("s", "node_id"), ("s", "result"), ("s", "result_format"), ("m", "timing"),
        ("s", "error_code"), ("s", "error_message"), ("u", "attempts"),
    ],
    "RegisterNodeRequest": [("m", "descriptor"), ("s", "token")],
    "RegisterNodeResponse": [
        ("b", "accepted"), ("s", "error_code"), ("s", "error_message"), ("u", "heartbeat_interval_ms"),
    ],
    "HeartbeatRequest": [("s", "node_id"), ("m", "health")],
    "HeartbeatResponse": [("b", "accepted"), ("u", "state"), ("b", "must_reregister")],
    "ListNodesRequest": [],
    "ListNodesResponse": [("m", "nodes"), ("s", "policy")],
    "NodeStatus": [
        ("m", "descriptor"), ("u", "state"), ("m", "health"), ("u", "reboot_count"), ("b", "has_ewma_inference_ms"),
        ("d", "ewma_inference_ms"), ("b", "has_ewma_network_ms"), ("d", "ewma_network_ms"),
    ],
    "DeregisterNodeRequest": [("s", "node_id"), ("s", "reason")],
    "DeregisterNodeResponse": [("b", "accepted")],
    "NodeInferRequest": [
        ("s", "request_id"), ("s", "model_id"), ("s", "payload"), ("u", "input_format"), ("u", "queue_timeout_ms"),
    ],
    "NodeInferResponse": [
        ("s", "request_id"), ("s", "result"), ("s", "result_format"), ("m", "timing"), ("s", "error_code"),
        ("s", "error_message"),
    ],
    "HealthResponse": [("m", "health"), ("b", "ready")],
    "ListModelsResponse": [("m", "models")],
    "WarmupRequest": [("s", "model_id"), ("u", "runs")],
    "WarmupResponse": [("b", "completed"), ("u", "runs_done"), ("s", "error_code"), ("s", "error_message")],
}  # fmt: skip

ENUMS = {
    "InputFormat": ["INPUT_FORMAT_" + name for name in ("UNSPECIFIED", "JPEG", "PNG", "RGB8", "BGR8")],
    "NodeState": [
        "NODE_STATE_" + name
        for name in (
            "UNSPECIFIED", "REGISTERING", "HEALTHY", "BUSY", "DEGRADED", "UNREACHABLE", "RECOVERING", "DRAINING",
            "DISABLED",
        )
    ],
    "ModelState": [
        "MODEL_STATE_" + name for name in ("UNSPECIFIED", "UNLOADED", "LOADING", "READY", "FAILED", "DRAINING")
    ],
}  # fmt: skip

CODES = {
    "NPF-0000": False, "NPF-1001": False, "NPF-1002": False, "NPF-1003": False, "NPF-1004": False, "NPF-1101": False,
    "NPF-1102": False, "NPF-1201": False, "NPF-1202": False, "NPF-1203": False, "NPF-1301": True, "NPF-1302": True,
    "NPF-1303": True, "NPF-1401": True, "NPF-1402": True, "NPF-1501": False,
}  # fmt: skip


def _golden(number: int, kind: str) -> tuple[bytes, Any]:
    """A field as it lies on the wire, by hand, and the value that it stands for."""
    if kind in "ub":
        return bytes([number << 3 | 0, 1]), 1
    if kind == "d":
        return bytes([number << 3 | 1]) + struct.pack("<d", number + 0.5), number + 0.5
    if kind == "s":
        return bytes([number << 3 | 2, 1, 0x61]), "a"
    return bytes([number << 3 | 2, 0]), None


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_every_field_has_its_number_and_kind(name: str) -> None:
    make = getattr(pb, name)
    ours = [field.name for field in make.DESCRIPTOR.fields if field.number < 101]
    assert ours == [field for _, field in MESSAGES[name]]
    for number, (kind, field) in enumerate(MESSAGES[name], 1):
        data, value = _golden(number, kind)
        message = make.FromString(data)
        found = getattr(message, field)
        if kind == "m":
            assert message.ByteSize() > 0 or field == "metadata", field
        else:
            assert found == (value.encode() if isinstance(found, bytes) else value), field
            assert message.SerializeToString() == data, field


def test_a_request_lies_on_the_wire_as_it_did() -> None:
    literal = bytes.fromhex(
        "0a02723112037969 6f1a03010203 2003 28ffffffffffffffffff01 3005 3a060a016b120176".replace(" ", "")
    )
    message = pb.InferRequest.FromString(literal)
    assert (message.request_id, message.model_id, message.payload) == ("r1", "yio", b"\1\2\3")
    assert (message.input_format, message.priority, message.deadline_unix_ms) == (3, -1, 5)
    assert dict(message.metadata) == {"k": "v"}
    assert message.SerializeToString() == literal


def test_every_enum_value_has_its_number() -> None:
    for name, values in ENUMS.items():
        assert dict(getattr(pb, name).items()) == {value: number for number, value in enumerate(values)}


def test_every_error_code_has_its_number_and_whether_it_is_tried_again() -> None:
    assert {code.value: code in RETRYABLE for code in Code} == CODES


def test_an_unknown_code_of_a_node_counts_as_a_failed_inference() -> None:
    assert from_node("NPF-7777") == Code.INFERENCE_FAILED
    assert from_node("") == from_node("NPF-0000") == Code.OK


def test_services_and_rpcs_have_their_names() -> None:
    services = {name: [method.name for method in service.methods] for name, service in
                pb.DESCRIPTOR.services_by_name.items()}  # fmt: skip
    assert services["SchedulerService"][:5] == ["Infer", "RegisterNode", "Heartbeat", "DeregisterNode", "ListNodes"]
    assert services["NodeService"][:4] == ["Infer", "Health", "ListModels", "Warmup"]
    assert pb.DESCRIPTOR.package == "npuforge.v1"


def test_the_generated_classes_are_those_of_the_proto_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={tmp_path}/set"]
    subprocess.run([*command, PROTO.name], check=True, timeout=120)
    from google.protobuf import descriptor_pb2

    made = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file[0]
    kept = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(kept)
    for message in [*made.message_type, *(nested for one in made.message_type for nested in one.nested_type)]:
        for field in message.field:
            field.ClearField("json_name")
    assert kept == made
