"""A closed loop of clients that writes down every answer: `python -m ...ledger_client SCHEDULER CLIENTS LEDGER`.

It says `ready` and loads until its standard input ends; then it waits for what is under way. A line of the ledger is
one answer: the id that was asked for and the one that came back, code, node, attempts, image, CRC of the result, times
of the monotonic clock. A request that came to no answer has its line too.
"""

from __future__ import annotations

import asyncio
import binascii
import json
import sys
import time
from typing import Any, TextIO

import grpc
from npuforge import channels, rpc
from npuforge import npuforge_pb2 as pb

from .cluster import image_of, request

IMAGES = 8
# Longer than the scheduler's own limit: it is the scheduler that gives up.
PATIENCE_S = 30.0


def _line(asked: str, image: int, sent_s: float, answer: Any) -> dict[str, object]:
    return {
        "asked": asked,
        "answered": answer.request_id,
        "code": answer.error_code or "NPF-0000",
        "node": answer.node_id,
        "attempts": answer.attempts,
        "image": image,
        "crc": binascii.crc32(answer.result) if answer.result else None,
        "message": answer.error_message,
        "sent_s": sent_s,
        "ended_s": time.monotonic(),
    }


async def _client(index: int, address: str, ended: asyncio.Event, ledger: TextIO) -> None:
    method = rpc.SCHEDULER["Infer"]
    images = [image_of(image) for image in range(IMAGES)]
    async with grpc.aio.insecure_channel(address, options=channels.client_options()) as channel:
        infer = rpc.call(channel, method)
        number = 0
        while not ended.is_set():
            asked, image, sent_s = f"{index}-{number}", number % IMAGES, time.monotonic()
            number += 1
            try:
                answer = await infer(request(image, request_id=asked, payload=images[image]), timeout=PATIENCE_S)
            except grpc.aio.AioRpcError as error:
                answer = pb.InferResponse(error_code=f"TRANSPORT-{error.code().name}", error_message=error.details())
            ledger.write(json.dumps(_line(asked, image, sent_s, answer)) + "\n")


async def _run(address: str, clients: int, path: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    with open(path, "x", encoding="utf-8") as ledger:
        print("ready", flush=True)
        await asyncio.gather(*(_client(index, address, ended, ledger) for index in range(clients)))


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
