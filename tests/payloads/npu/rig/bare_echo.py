"""A bare gRPC echo of the cluster's message sizes, both ends in this process; prints its CPU seconds per message."""

import asyncio
import os
import resource

import grpc

SIZE = 1_228_800
SLOTS, MESSAGES = 12, 300
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


async def echo(data, _):
    return data


class Echo(grpc.GenericRpcHandler):
    def service(self, _):
        return grpc.unary_unary_rpc_method_handler(echo)


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main():
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    message = os.urandom(SIZE)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        call = channel.unary_unary("/echo")

        async def work(count):
            for _ in range(count):
                assert len(await call(message)) == SIZE

        await work(10)
        before = cpu_s()
        await asyncio.gather(*(work(MESSAGES // SLOTS) for _ in range(SLOTS)))
        print((cpu_s() - before) / MESSAGES)
    await server.stop(0)


asyncio.run(main())
