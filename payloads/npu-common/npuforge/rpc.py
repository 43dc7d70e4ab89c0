"""The RPCs as a table, and handlers and calls made from it.

`Infer` passes as bytes: whoever carries megabytes decides what of them is parsed. All other messages are parsed here,
so that a malformed one is an answer of the protocol's kind and not a stack trace.
"""

import collections

import grpc
from google.protobuf.message import DecodeError

from npuforge import npuforge_pb2 as pb

Method = collections.namedtuple("Method", "path request response streams")


def _table(service, *rows):
    return {
        name: Method(f"/npuforge.v1.{service}/{name}", request, response, streams)
        for name, request, response, streams in rows
    }


SCHEDULER = _table(
    "SchedulerService",
    ("Infer", pb.InferRequest, pb.InferResponse, False),
    ("RegisterNode", pb.RegisterNodeRequest, pb.RegisterNodeResponse, False),
    ("Heartbeat", pb.HeartbeatRequest, pb.HeartbeatResponse, False),
    ("DeregisterNode", pb.DeregisterNodeRequest, pb.DeregisterNodeResponse, False),
    ("ListNodes", pb.ListNodesRequest, pb.ListNodesResponse, False),
    ("DrainNode", pb.DrainNodeRequest, pb.DrainNodeResponse, False),
    ("Clock", pb.ClockRequest, pb.ClockResponse, False),
    ("StreamTelemetry", pb.StreamTelemetryRequest, pb.SchedulerTelemetry, True),
)

NODE = _table(
    "NodeService",
    ("Infer", pb.NodeInferRequest, pb.NodeInferResponse, False),
    ("Health", pb.HealthRequest, pb.HealthResponse, False),
    ("ListModels", pb.ListModelsRequest, pb.ListModelsResponse, False),
    ("Warmup", pb.WarmupRequest, pb.WarmupResponse, False),
    ("Clock", pb.ClockRequest, pb.ClockResponse, False),
    ("StreamTelemetry", pb.StreamTelemetryRequest, pb.NodeTelemetry, True),
)


async def _parsed(method, data, context):
    try:
        return method.request.FromString(bytes(data))
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"NPF-1001: this is no {method.request.DESCRIPTOR.name}")


def _unary(method, function):
    async def handle(data, context):
        answer = await function(await _parsed(method, data, context), context)
        return answer.SerializeToString()

    return grpc.unary_unary_rpc_method_handler(handle)


def _streaming(method, function):
    async def handle(data, context):
        async for answer in function(await _parsed(method, data, context), context):
            yield answer.SerializeToString()

    return grpc.unary_stream_rpc_method_handler(handle)


def _joined(function):
    async def handle(data, context):
        return b"".join(await function(data, context))

    return handle


def handlers(table, functions, raw=(), engine="lean"):
    """A generic handler: `functions[name](request, context)` for every RPC of the table.

    A function in `raw` gets bytes and returns a list of buffers. KeyError when an RPC has no function.
    """
    made = {}
    for name, method in table.items():
        function = functions[name]
        if name in raw:
            carried = function if engine == "lean" else _joined(function)
            made[method.path] = grpc.unary_unary_rpc_method_handler(carried)
        else:
            made[method.path] = (_streaming if method.streams else _unary)(method, function)

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details):
            return made.get(details.method)

    return Handlers()


def call(channel, method):
    """A callable for one RPC on a channel, with messages."""
    make = channel.unary_stream if method.streams else channel.unary_unary
    return make(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )


def raw_call(channel, method):
    """A callable for one unary RPC on a channel, with bytes."""
    return channel.unary_unary(method.path)
