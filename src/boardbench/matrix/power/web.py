"""One HTTP GET that must answer with a JSON object: what switched sockets understand.

No proxy, no redirect, a time-out on every step, and at most 64 KiB: a socket on the bench answers at once and briefly.
"""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any

from boardbench.errors import InputError, RigError

MAX_BYTES = 64 * 1024
DEFAULT_TIMEOUT_S = 5.0


def check_address(address: object, where: str) -> str:
    """The address without a slash at its end; InputError when it is not `http://HOST[:PORT]` or https."""
    parts = urllib.parse.urlsplit(address) if isinstance(address, str) else None
    try:
        good = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        good = False
    if not good or parts is None or parts.path.strip("/") or parts.query or parts.fragment:
        raise InputError(
            f"'{address}' is not the address of a switched socket", where=where, advice="like http://192.0.2.20"
        )
    if parts.username or parts.password:
        raise InputError(
            "an address must not hold a password", where=where, advice="keep the sockets on a network of their own"
        )
    assert isinstance(address, str)
    return address.rstrip("/")


def get_object(address: str, path: str, query: Mapping[str, str], timeout_s: float, where: str) -> dict[str, Any]:
    """The JSON object that `address/path?query` answers with status 200. Raises RigError for anything else."""
    parts = urllib.parse.urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    target = f"{path}?{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}"
    said = f"the socket at {parts.netloc}"
    try:
        connection.request("GET", target, headers={"Accept": "application/json", "Connection": "close"})
        answer = connection.getresponse()
        body = answer.read(MAX_BYTES + 1)
    except TimeoutError:
        raise RigError(f"{said} did not answer within {timeout_s:g} s", where=where, transient=True) from None
    except (OSError, http.client.HTTPException) as error:
        raise RigError(
            f"{said} cannot be asked: {error or type(error).__name__}", where=where, transient=True
        ) from error
    finally:
        connection.close()
    if answer.status == 401:
        raise RigError(f"{said} wants a password", where=where, advice="switch its login off, or use driver command")
    if answer.status != 200:
        raise RigError(f"{said} answered with status {answer.status}: {body[:120]!r}", where=where)
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if len(body) > MAX_BYTES or not isinstance(value, dict):
        raise RigError(f"{said} did not answer with a JSON object: {body[:120]!r}", where=where)
    return value
