"""gRPC over HTTP/2 for large unary messages, by asyncio alone, in place of grpc.aio where payloads pass.

The same wire, and the same face: `Server` takes the same handlers, `Channel` makes the same calls, and errors are
`grpc.RpcError` with `code()` and `details()`. What it does not do: compression, client streaming, load balancing.

Why: grpc.aio copies a message of 1.2 MB four to five times in each program on its way in and out, and hands it between
three threads. Here the kernel writes it where it stays, and reads it from there.
"""
