"""A peer of the existing rig, made of nothing but the stubs that the protocol compiler makes of `rig.proto`.

    peer.py STUBS node NAME LISTEN SCHEDULER      registers, beats, answers with the image's first bytes
    peer.py STUBS scheduler LISTEN                takes one node in and passes every Infer on to it

It prints `ready` once it serves. Plain synchronous gRPC with large messages, as another implementation would be.
"""

import sys
import threading
import time
from concurrent import futures

sys.path.insert(0, sys.argv[1])

import grpc
import rig_pb2 as pb
import rig_pb2_grpc as stubs

OPTIONS = [("grpc.max_send_message_length", 10 << 20), ("grpc.max_receive_message_length", 10 << 20)]


class Node(stubs.NodeServiceServicer):
    def Infer(self, request, context):  # noqa: N802
        if request.queue_timeout_ms != 3000:
            return pb.NodeInferResponse(
                request_id=request.request_id, error_code="NPF-9999", error_message="no timeout"
            )
        return pb.NodeInferResponse(
            request_id=request.request_id,
            result=request.payload[:1000],
            result_format="rknn-tensors-v1",
            timing=pb.Timing(node_queue_us=100, inference_us=2000),
        )


class Scheduler(stubs.SchedulerServiceServicer):
    def __init__(self):
        self.nodes, self.beats = {}, {}

    def RegisterNode(self, request, context):  # noqa: N802
        self.nodes[request.descriptor.node_id] = request.descriptor
        return pb.RegisterNodeResponse(accepted=True, heartbeat_interval_ms=2000)

    def Heartbeat(self, request, context):  # noqa: N802
        self.beats[request.node_id] = request.health
        return pb.HeartbeatResponse(accepted=True, state=pb.NODE_STATE_HEALTHY)

    def ListNodes(self, request, context):  # noqa: N802
        nodes = [pb.NodeStatus(descriptor=self.nodes[name], health=health) for name, health in self.beats.items()]
        return pb.ListNodesResponse(nodes=nodes, policy="round-robin")

    def Infer(self, request, context):  # noqa: N802
        node = next(iter(self.nodes.values()))
        with grpc.insecure_channel(node.address, options=OPTIONS) as channel:
            answer = stubs.NodeServiceStub(channel).Infer(
                pb.NodeInferRequest(
                    request_id=request.request_id,
                    model_id=request.model_id,
                    payload=request.payload,
                    input_format=request.input_format,
                    queue_timeout_ms=3000,
                ),
                timeout=30,
            )
        return pb.InferResponse(
            request_id=answer.request_id,
            node_id=node.node_id,
            result=answer.result,
            result_format=answer.result_format,
            timing=answer.timing,
            error_code=answer.error_code,
            error_message=answer.error_message,
            attempts=1,
        )


def beat(name, listen, address):
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        scheduler = stubs.SchedulerServiceStub(channel)
        descriptor = pb.NodeDescriptor(
            node_id=name,
            hostname=name,
            address=listen,
            models=[pb.ModelDescriptor(id="yolov8n", state=pb.MODEL_STATE_READY)],
        )
        accepted = scheduler.RegisterNode(pb.RegisterNodeRequest(descriptor=descriptor), timeout=30).accepted
        assert accepted
        while True:
            scheduler.Heartbeat(pb.HeartbeatRequest(node_id=name, health=pb.NodeHealth(boot_id="b1")), timeout=30)
            time.sleep(0.2)


def main():
    kind, rest = sys.argv[2], sys.argv[3:]
    server = grpc.server(futures.ThreadPoolExecutor(8), options=OPTIONS)
    if kind == "node":
        stubs.add_NodeServiceServicer_to_server(Node(), server)
        threading.Thread(target=beat, args=rest, daemon=True).start()
        server.add_insecure_port(rest[1])
    else:
        stubs.add_SchedulerServiceServicer_to_server(Scheduler(), server)
        server.add_insecure_port(rest[0])
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


main()
