"""The carrier of the door: Fabric knows the way (ssh_config, users, keys, gateways), Paramiko is the wire.

As shipped both are slow and can hang. What is different here, and why: our own socket without Nagle and with
keepalive; AES-GCM first; re-key limits raised, because a channel that closes during a re-key dead-locks Paramiko
(paramiko #822); every wait has a time-out; host keys are pinned and never learned by themselves.
"""

from __future__ import annotations

import logging
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import fabric  # type: ignore[import-untyped]
import paramiko
from paramiko.hostkeys import InvalidHostKey
from paramiko.ssh_exception import AuthenticationException, BadHostKeyException, PasswordRequiredException, SSHException

from boardbench.crew import check_stop
from boardbench.errors import BenchError, HostKeyError, InputError, RigError, UnreachableError
from boardbench.inventory import Access
from boardbench.transport import LinkLost

# Paramiko logs what it also raises; without a handler Python prints that, with a traceback, on the user's terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_FIRST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
REKEY_BYTES = 2**35
REKEY_PACKETS = 2**31
# A power cut is noticed after 5 + 3 x 5 s by the kernels alone: nothing wakes the board's sshd during a measurement.
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000))
_HANDSHAKE_TRIES = 6


class _UnknownKey(SSHException):
    def __init__(self, name: str, key: paramiko.PKey) -> None:
        super().__init__(f"no key is pinned for {name}")
        self.key = key


class _Reject(paramiko.RejectPolicy):
    """Like RejectPolicy, but keeps the key, so that the error can name its fingerprint."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:
        raise _UnknownKey(hostname, key)


def fingerprint(key: paramiko.PKey) -> str:
    """The fingerprint as `ssh-keygen -l` prints it: SHA256:..."""
    return str(key.fingerprint)


def endpoint(access: Access) -> fabric.Connection:
    """The way to a board as Fabric resolves it; nothing is opened. The alias' HostName, when it has one, wins."""
    connection = fabric.Connection(
        access.alias or access.host,
        user=access.user,
        port=access.port if access.port != 22 else None,
        gateway=fabric.Connection(access.gateway) if access.gateway else None,
        connect_kwargs={"key_filename": [str(access.key_file)]} if access.key_file else {},
    )
    if access.alias and connection.host == access.alias:
        connection.host = access.host
    return connection


def make_transport(sock: Any, disabled_algorithms: Any = None, **options: Any) -> paramiko.Transport:
    """A Paramiko transport with fast ciphers first and without its early re-key."""
    transport = paramiko.Transport(sock, disabled_algorithms=disabled_algorithms, **options)
    security = transport.get_security_options()
    rest = [name for name in security.ciphers if name not in _FIRST_CIPHERS]
    security.ciphers = [*(name for name in _FIRST_CIPHERS if name in security.ciphers), *rest]
    # Private names of Paramiko: a test fails when they change.
    transport.packetizer.REKEY_BYTES = REKEY_BYTES
    transport.packetizer.REKEY_PACKETS = REKEY_PACKETS
    return transport


class _Opening:
    """One attempt to reach a board: knows its name for errors, its deadline, and what to close when it fails."""

    def __init__(
        self, where: str, known_hosts: Path | None, deadline: float, *, is_gateway: bool = False, trust: str = ""
    ) -> None:
        self.where = where
        self.trust = trust
        self.is_gateway = is_gateway
        self.known_hosts = known_hosts
        self.deadline = deadline
        self._close: list[Callable[[], None]] = []

    def trust_command(self, way: fabric.Connection) -> str:
        """What pins the key of the machine that this attempt goes to."""
        if self.is_gateway:
            return f"ssh -p {way.port} {way.user}@{way.host}"
        return self.trust or f"./inv boards.trust {self.where}"

    def left_s(self) -> float:
        check_stop()
        return max(0.05, self.deadline - time.monotonic())

    def close(self) -> None:
        for close in reversed(self._close):
            close()
        self._close.clear()

    def stream(self, way: fabric.Connection) -> Any:
        """A socket, or what acts like one, to the SSH port of `way`, through its gateway if it has one."""
        if not way.gateway:
            return self._socket(way.host, int(way.port))
        if isinstance(way.gateway, str):
            proxy = paramiko.ProxyCommand(way.gateway)
            self._close.append(proxy.close)
            return proxy
        hop = _Opening(f"{self.where}: gateway {way.gateway.host}", self.known_hosts, self.deadline, is_gateway=True)
        client = hop.client(way.gateway)
        self._close.append(hop.close)
        transport = client.get_transport()
        assert transport is not None
        try:
            return transport.open_channel(
                "direct-tcpip", (way.host, int(way.port)), ("127.0.0.1", 0), timeout=self.left_s()
            )
        except SSHException as error:
            raise UnreachableError(
                f"the gateway {way.gateway.host} cannot reach {way.host}:{way.port}: {error}", where=self.where
            ) from error

    def _socket(self, host: str, port: int) -> socket.socket:
        place = f"{host}:{port}"
        timeout_s = self.left_s()
        try:
            sock = socket.create_connection((host, port), timeout=timeout_s)
        except socket.gaierror as error:
            raise UnreachableError(
                f"the name {host} cannot be resolved: {error.strerror}", where=self.where, advice="check the inventory"
            ) from error
        except ConnectionRefusedError as error:
            raise UnreachableError(
                f"{place} refuses the connection", where=self.where, advice="is sshd running, and is the port right?"
            ) from error
        except TimeoutError as error:
            raise UnreachableError(
                f"{place} does not answer (waited {timeout_s:.1f} s)",
                where=self.where,
                advice="the board is down or cut off",
            ) from error
        except OSError as error:
            raise UnreachableError(
                f"{place} cannot be reached: {error.strerror or error}", where=self.where, advice="check the network"
            ) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._close.append(sock.close)
        return sock

    def client(self, way: fabric.Connection) -> paramiko.SSHClient:
        """A connected and authenticated client."""
        sock = self.stream(way)
        client = paramiko.SSHClient()
        self._close.append(client.close)
        client.set_missing_host_key_policy(_Reject())
        self._load_pins(client)
        if self.is_gateway:
            # A gateway is no board: who uses it has its key where ssh keeps it.
            client.load_system_host_keys()
        keys = [str(Path(name).expanduser()) for name in way.connect_kwargs.get("key_filename", [])]
        present = [name for name in keys if Path(name).is_file()]
        timeout_s = self.left_s()
        try:
            client.connect(
                hostname=way.host,
                port=int(way.port),
                username=way.user,
                key_filename=present or None,  # type: ignore[arg-type]
                # With a named key nothing else is tried: servers count attempts.
                allow_agent=not present,
                look_for_keys=not present,
                sock=sock,
                timeout=timeout_s,
                banner_timeout=timeout_s,
                auth_timeout=timeout_s,
                channel_timeout=timeout_s,
                transport_factory=make_transport,
            )
        except (SSHException, OSError, EOFError, ValueError) as error:
            raise self._explain(error, way, present, timeout_s) from error
        return client

    def _load_pins(self, client: paramiko.SSHClient) -> None:
        if self.known_hosts is None or not self.known_hosts.is_file():
            return
        try:
            client.load_host_keys(str(self.known_hosts))
        except (InvalidHostKey, OSError, ValueError) as error:
            raise InputError(f"cannot be read: {error}", where=str(self.known_hosts)) from error

    def _explain(self, error: Exception, way: fabric.Connection, keys: list[str], timeout_s: float) -> BenchError:
        place = f"{way.host}:{way.port}"
        if isinstance(error, (BadHostKeyException, _UnknownKey)):
            return _host_key_error(error, self.where, self.trust_command(way), place)
        if isinstance(error, PasswordRequiredException):
            return InputError(
                f"the key {', '.join(keys)} has a passphrase", where=self.where, advice="put it into ssh-agent"
            )
        if isinstance(error, AuthenticationException):
            if "timeout" in str(error).lower():
                return UnreachableError(
                    f"{place} does not answer during authentication (waited {timeout_s:.1f} s)", where=self.where
                )
            shown = f"key {', '.join(keys)}" if keys else "any key of the agent or of ~/.ssh"
            return RigError(
                f"{place} does not accept user {way.user} with {shown}",
                where=self.where,
                advice=f"check `user` and `key` in the inventory, or install the public key: "
                f"ssh-copy-id -p {way.port} {way.user}@{way.host}",
            )
        text = str(error) or type(error).__name__
        # "No existing session" is what Paramiko says when the handshake is not over at its time-out.
        silent = ("banner", "Timeout", "No existing session", "Negotiation failed")
        if isinstance(error, (TimeoutError, EOFError)) or any(words in text for words in silent):
            return UnreachableError(
                f"{place} accepts the connection but does not speak SSH in time (waited {timeout_s:.1f} s at most)",
                where=self.where,
                advice="the board hangs, is overloaded, or another service has this port",
            )
        if "Incompatible" in text or "no acceptable" in text:
            return RigError(f"{place} offers no SSH algorithm that Paramiko knows: {text}", where=self.where)
        return UnreachableError(f"the SSH handshake with {place} failed: {text}", where=self.where)


def _host_key_error(error: BadHostKeyException | _UnknownKey, where: str, command: str, place: str) -> HostKeyError:
    if isinstance(error, _UnknownKey):
        return HostKeyError(
            f"the host key of {place} is not known: {error.key.get_name()} {fingerprint(error.key)}",
            where=where,
            advice=f"if this is its fingerprint, trust it: {command}",
        )
    return HostKeyError(
        f"the host key of {place} has changed: pinned is {fingerprint(error.expected_key)}, "
        f"the board shows {fingerprint(error.key)}",
        where=where,
        advice=f"if it was installed anew, trust the new key: {command}; if not, another machine answers",
    )


class SshExec:
    """`transport.Exec` over one SSH channel."""

    def __init__(self, channel: paramiko.Channel, transport: paramiko.Transport) -> None:
        self._channel = channel
        self._transport = transport
        self._poll = select.poll()
        # The descriptor becomes readable for either stream and at the end: one wait serves both.
        self._poll.register(channel.fileno(), select.POLLIN)

    def send(self, data: memoryview, timeout_s: float) -> int:
        """See `transport.Exec`."""
        self._channel.settimeout(timeout_s)
        try:
            # 256 KiB: enough to fill packets, little enough to notice the deadline between two.
            return self._channel.send(bytes(data[: 1 << 18]))
        except TimeoutError:
            return 0
        except (OSError, SSHException, EOFError) as error:
            if not self._transport.is_active():
                raise LinkLost(str(self._transport.get_exception() or error)) from error
            raise EOFError from error

    def receive(self, timeout_s: float) -> tuple[bytes, bytes]:
        """See `transport.Exec`."""
        channel = self._channel
        if not (channel.recv_ready() or channel.recv_stderr_ready()):
            self._poll.poll(max(0, int(timeout_s * 1000)))
        try:
            out = channel.recv(1 << 20) if channel.recv_ready() else b""
            err = channel.recv_stderr(1 << 16) if channel.recv_stderr_ready() else b""
        except SSHException as error:
            raise LinkLost(str(error)) from error  # a read also tells the peer so: fails where a key exchange hangs
        if out or err:
            return out, err
        if not self._transport.is_active():
            raise LinkLost(str(self._transport.get_exception() or "the connection was closed"))
        if channel.eof_received or channel.closed:
            if channel.recv_ready() or channel.recv_stderr_ready():
                return b"", b""  # came between the two looks
            raise EOFError
        return b"", b""

    def exit_code(self, timeout_s: float) -> int | None:
        """See `transport.Exec`."""
        # Not recv_exit_status(): that waits without end.
        known = self._channel.status_event.wait(timeout_s) and self._channel.exit_status >= 0
        return int(self._channel.exit_status) if known else None

    def close(self) -> None:
        """See `transport.Exec`."""
        with suppress(Exception):  # a dead transport's channel may raise anything; it is closed all the same
            self._channel.close()


class SshLink:
    """`transport.Link` over one SSH connection."""

    def __init__(self, client: paramiko.SSHClient, user: str, close: Callable[[], None]) -> None:
        transport = client.get_transport()
        assert transport is not None
        self._transport = transport
        self._close = close
        self.user = user

    @classmethod
    def open(cls, access: Access, known_hosts: Path, *, where: str, deadline_s: float, trust: str = "") -> SshLink:
        """Connects. Raises UnreachableError, HostKeyError (tells `trust`), RigError (not let in), InputError (key)."""
        if access.key_file is not None and not access.key_file.is_file():
            what = f"the key file {access.key_file} does not exist"
            raise InputError(what, where=where, advice="see `key` in the inventory")
        deadline = time.monotonic() + deadline_s
        way = endpoint(access)
        for attempt in range(1, _HANDSHAKE_TRIES + 1):
            opening = _Opening(where, known_hosts, deadline, trust=trust)
            # The last resort: Paramiko measures its own time-outs by the wall clock, which may jump.
            last_resort = threading.Timer(max(0.0, deadline - time.monotonic()) + 1.0, opening.close)
            last_resort.daemon = True
            last_resort.start()
            try:
                client = opening.client(way)
                last_resort.cancel()
                return cls(client, way.user, opening.close)
            except UnreachableError as error:
                last_resort.cancel()
                opening.close()
                # An sshd that has too many newcomers drops some in the handshake: those, and only those, try again.
                dropped = isinstance(error.__cause__, (SSHException, EOFError, ConnectionResetError))
                pause_s = random.uniform(0.1, 0.4) * attempt
                if not dropped or attempt == _HANDSHAKE_TRIES or time.monotonic() + pause_s + 0.5 > deadline:
                    raise
                time.sleep(pause_s)
            except BaseException:
                last_resort.cancel()
                opening.close()
                raise
        raise AssertionError("unreachable")

    def start(self, command: str, timeout_s: float) -> SshExec:
        """See `transport.Link`."""
        try:
            channel = self._transport.open_session(timeout=timeout_s)
            channel.settimeout(timeout_s)
            channel.exec_command(command)
        except (SSHException, OSError, EOFError) as error:
            if not self._transport.is_active():
                raise LinkLost(str(self._transport.get_exception() or error)) from error
            if isinstance(error, TimeoutError) or "imeout" in str(error):
                raise TimeoutError(str(error)) from error
            raise LinkLost(f"the board opens no session: {error}") from error
        return SshExec(channel, self._transport)

    def alive(self) -> bool:
        """See `transport.Link`."""
        return bool(self._transport.is_active())

    def close(self) -> None:
        """See `transport.Link`."""
        self._close()


def host_key(access: Access, *, where: str, deadline_s: float = 10.0) -> paramiko.PKey:
    """The host key that the board shows now: a key exchange and no authentication. Raises UnreachableError."""
    way = endpoint(access)
    opening = _Opening(where, None, time.monotonic() + deadline_s)
    timeout_s = opening.left_s()
    try:
        transport = make_transport(opening.stream(way))
        transport.banner_timeout = timeout_s
        try:
            transport.start_client(timeout=timeout_s)
            return transport.get_remote_server_key()
        except (SSHException, OSError, EOFError) as error:
            raise opening._explain(error, way, [], timeout_s) from error
        finally:
            transport.close()
    finally:
        opening.close()


def pin_name(access: Access) -> str:
    """The name under which a board's key is pinned: its resolved host, with the port where it is not 22."""
    way = endpoint(access)
    return str(way.host) if int(way.port) == 22 else f"[{way.host}]:{way.port}"
