"""A small HTTP server for /metrics and /healthz: GET, one answer, the connection ends."""

import asyncio

MAX_HEAD_BYTES = 8192
PATIENCE_S = 5.0
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}


async def start_http(listen, pages):
    """Serves `pages`: {path: function that returns (content type, text)}. OSError when the port cannot be had."""

    async def handle(reader, writer):
        try:
            await asyncio.wait_for(_answer(reader, writer, pages), PATIENCE_S)
        except (asyncio.TimeoutError, OSError, asyncio.IncompleteReadError):
            # The peer is slow or gone: nobody is left to be told.
            pass
        finally:
            writer.close()

    host, _, port = listen.rpartition(":")
    return await asyncio.start_server(handle, host.strip("[]") or None, int(port), limit=MAX_HEAD_BYTES)


async def _answer(reader, writer, pages):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
    except (asyncio.LimitOverrunError, ValueError):
        status, kind, text = 400, "text/plain", "not a request\n"
    else:
        page = pages.get(path.split("?", 1)[0])
        if method not in ("GET", "HEAD"):
            status, kind, text = 405, "text/plain", "GET only\n"
        elif page is None:
            status, kind, text = 404, "text/plain", f"here are {', '.join(sorted(pages))}\n"
        else:
            status, (kind, text) = 200, page()
    body = text.encode()
    writer.write(
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()
