"""The cluster as a whole: every request answered once, equal images equal outputs, nodes come and go."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import grpc
from npuforge import npuforge_pb2 as pb
from npuforge import rpc, tensors

from .cluster import Cluster, image_of, request, until


def test_an_image_comes_back_as_nine_native_tensors_of_the_model(shared: Cluster) -> None:
    answer = shared.infer(7)
    assert (answer.request_id, answer.error_code, answer.attempts) == ("r7", "", 1)
    assert answer.result_format == "rknn-tensors-v1"
    found = tensors.parse(answer.result)
    assert [tensor.dims for tensor in found] == list(tensors.YOLO_DIMS)
    assert sum(len(tensor.data) for tensor in found) == 1_218_000


def test_equal_images_have_equal_outputs_on_every_node_and_other_images_others(shared: Cluster) -> None:
    results = {}
    for node in ("king", "queen", "jack"):
        for seed in (3, 4):
            answers = [shared.infer(seed, metadata={"node": node}) for _ in range(2)]
            assert {answer.node_id for answer in answers} == {node}
            assert answers[0].result == answers[1].result
            results[node, seed] = answers[0].result
    assert len({results[node, 3] for node in ("king", "queen", "jack")}) == 1
    assert results["king", 3] != results["king", 4]


def test_the_last_bytes_of_an_image_count_too(shared: Cluster) -> None:
    other = image_of(3)[:-1] + b"\xff"
    assert shared.infer(3).result != shared.infer(3, payload=other).result


def test_round_robin_goes_over_all_nodes(shared: Cluster) -> None:
    assert {shared.infer(seed).node_id for seed in range(6)} == {"king", "queen", "jack"}


def test_stages_add_up_and_the_measured_legs_are_apart_from_the_halves(shared: Cluster) -> None:
    until(lambda: all(node.has_clock_offset_us for node in shared.list_nodes().nodes), "clock offsets")
    timing = shared.infer().timing
    assert abs(timing.network_to_node_us - timing.network_to_client_us) <= 1
    assert timing.HasField("leg_to_node_us")
    assert timing.HasField("leg_error_us")
    outside = timing.network_to_node_us + timing.network_to_client_us
    legs = timing.leg_to_node_us + timing.leg_from_node_us
    # The offset cancels out in the sum; what is left is the node's time between its two stamps.
    assert legs <= outside + 1000
    assert timing.end_to_end_us >= outside


def test_nodes_on_one_clock_have_an_offset_near_zero(shared: Cluster) -> None:
    until(lambda: all(node.has_clock_offset_us for node in shared.list_nodes().nodes), "clock offsets")
    for node in shared.list_nodes().nodes:
        assert abs(node.clock_offset_us) < 200_000


def test_a_listing_changes_nothing_and_is_sorted(shared: Cluster) -> None:
    first, second = shared.list_nodes(), shared.list_nodes()
    assert [node.descriptor.node_id for node in first.nodes] == ["jack", "king", "queen"]
    assert first.policy == second.policy == "round-robin"
    assert [node.descriptor for node in first.nodes] == [node.descriptor for node in second.nodes]
    assert all(node.descriptor.virtual and node.descriptor.backend == "virtual" for node in first.nodes)


def test_telemetry_streams_all_nodes_until_the_caller_has_enough(shared: Cluster) -> None:
    method = rpc.SCHEDULER["StreamTelemetry"]
    stream = shared.channel.unary_stream(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )(pb.StreamTelemetryRequest(period_ms=100), timeout=30)
    samples = [next(stream) for _ in range(3)]
    stream.cancel()
    assert [len(sample.nodes) for sample in samples] == [3, 3, 3]
    assert samples[0].unix_us < samples[1].unix_us < samples[2].unix_us


def test_metrics_tell_requests_nodes_and_a_histogram(shared: Cluster) -> None:
    shared.infer()
    text = shared.page("/metrics")
    assert 'npu_requests_total{code="NPF-0000"}' in text
    assert 'npu_node_state{node="king",state="healthy"} 1' in text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['npu_request_seconds_bucket{le="+Inf"}'] == lines["npu_request_seconds_count"]
    # No temperature file, so no temperature: never 0.
    assert "npu_node_temperature_celsius{" not in text


def test_a_killed_node_costs_no_request_and_is_back_after_a_restart(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start(("king", "queen"))
        cluster.nodes["king"].end(signal.SIGKILL)
        answers = [cluster.infer(seed) for seed in range(8)]
        assert {answer.error_code for answer in answers} == {""}
        assert {answer.node_id for answer in answers} == {"queen"}
        assert max(answer.attempts for answer in answers) == 2
        until(lambda: cluster.candidates() == {"queen"}, "king is out")
        cluster.start_node("king")
        cluster.wait_for("king", "queen")
        assert {cluster.infer(seed).node_id for seed in range(4)} == {"king", "queen"}


def test_a_node_that_ends_lets_its_requests_end_and_leaves(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start(("king", "queen"))
        answers: list[pb.InferResponse] = []
        ended = threading.Event()

        def load() -> None:
            while not ended.is_set():
                answers.append(cluster.infer(1))

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(answers) > 20, "load")
        assert cluster.nodes["king"].end() == 0
        until(lambda: cluster.candidates() == {"queen"}, "king has left")
        ended.set()
        for thread in threads:
            thread.join()
        assert {answer.error_code for answer in answers} == {""}


def test_a_scheduler_that_comes_back_finds_its_nodes_again(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start(("king", "queen"))
        assert cluster.scheduler is not None
        assert cluster.scheduler.end() == 0
        cluster.start_scheduler()
        cluster.wait_for("king", "queen")


def test_a_node_at_90_degrees_has_no_requests_and_one_that_has_cooled_has_them_again(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.heat("king", 60.0)
        cluster.start(("king", "queen"))
        cluster.heat("king", 90.0)
        until(lambda: cluster.candidates() == {"queen"}, "king is excluded")
        king = cluster.list_nodes().nodes[0]
        assert king.excluded_because == "90.0 degC, the limit is 90"
        assert {cluster.infer(seed).node_id for seed in range(4)} == {"queen"}
        assert 'npu_node_candidate{node="king"} 0' in cluster.page("/metrics")
        cluster.heat("king", 89.0)
        cluster.wait_for("king", "queen")
        assert cluster.list_nodes().nodes[0].state == pb.NODE_STATE_DEGRADED
        assert {cluster.infer(seed).node_id for seed in range(4)} == {"king", "queen"}


def test_draining_keeps_new_requests_away_until_the_operator_resumes(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start(("king", "queen"))
        order = pb.DrainNodeRequest(node_id="king", action=pb.DRAIN_ACTION_DRAIN, wait_ms=5000)
        answer = cluster.call("DrainNode", order)
        assert (answer.accepted, answer.state, answer.in_flight) == (True, pb.NODE_STATE_DRAINING, 0)
        assert {cluster.infer(seed).node_id for seed in range(4)} == {"queen"}
        # A new life of the node does not undo an operator's word.
        cluster.nodes["king"].end(signal.SIGKILL)
        cluster.start_node("king")
        until(lambda: cluster.nodes["king"].says().count("registered as king") == 2, "king registers again")
        assert {cluster.infer(seed).node_id for seed in range(4)} == {"queen"}
        resumed = cluster.call("DrainNode", pb.DrainNodeRequest(node_id="king", action=pb.DRAIN_ACTION_RESUME))
        assert resumed.accepted
        cluster.wait_for("king", "queen")
        unknown = cluster.call("DrainNode", pb.DrainNodeRequest(node_id="nobody", action=pb.DRAIN_ACTION_DRAIN))
        assert (unknown.accepted, unknown.error_code) == (False, "NPF-1001")


def test_without_a_node_the_answer_is_a_code_and_not_a_wait(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        answer = cluster.infer()
        assert (answer.error_code, answer.result, answer.attempts) == ("NPF-1201", b"", 0)


def test_a_scheduler_that_ends_answers_every_request_that_it_has_taken(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start(("king",))
        method = rpc.SCHEDULER["Infer"]
        call = cluster.channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        pending = [call.future(request(seed), timeout=30) for seed in range(12)]
        until(lambda: any(future.done() for future in pending), "the first answer")
        assert cluster.scheduler is not None
        assert cluster.scheduler.end() == 0
        answered = 0
        for future in pending:
            error = future.exception()
            if error is None:
                assert future.result().error_code == ""
                answered += 1
            else:
                # Not taken any more: the client may try again without a second answer.
                assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert f"answered {answered} requests, 0 of them with an error" in cluster.scheduler.says()
