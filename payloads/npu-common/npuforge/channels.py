"""Channel and server options: one place, since a limit that only one side has is none.

Messages up to 10 MiB of payload pass on both sides. Frames of 16 KiB, gRPC's default, would cut a request into 75
pieces with a header, a wake-up and a copy each; so both sides take large frames and read in large pieces.
"""

import itertools

import grpc

MAX_PAYLOAD_BYTES = 10 * 1024 * 1024
# Around the payload lie ids, times and messages: a payload of the full size must still pass, to be judged by us.
MAX_MESSAGE_BYTES = MAX_PAYLOAD_BYTES + 64 * 1024
FRAME_BYTES = 4 * 1024 * 1024
READ_BYTES = 1024 * 1024

_LARGE_MESSAGES = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.http2.max_frame_size", FRAME_BYTES),
    ("grpc.http2.lookahead_bytes", FRAME_BYTES),
    ("grpc.experimental.tcp_read_chunk_size", READ_BYTES),
    ("grpc.experimental.tcp_min_read_chunk_size", READ_BYTES),
    ("grpc.experimental.tcp_max_read_chunk_size", 4 * READ_BYTES),
)

# Servers may refuse pings that come more often than every five minutes, and the strict ones do (GOAWAY
# ENHANCE_YOUR_CALM); a lost peer is found by deadlines and heartbeats long before.
CLIENT_KEEPALIVE_MS = 330_000

_CLIENT = (
    *_LARGE_MESSAGES,
    ("grpc.keepalive_time_ms", CLIENT_KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # A node that comes back must be in service within seconds; gRPC's own back-off goes up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Retries are the scheduler's, on another node; a hidden second try would answer for a node that failed.
    ("grpc.enable_retries", 0),
    # Proxies of the environment are not for the rig's network.
    ("grpc.enable_http_proxy", 0),
)

_SERVER = (
    *_LARGE_MESSAGES,
    ("grpc.so_reuseport", 0),
    # However often a peer pings, it is not sent away.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    # The server's own pings find clients that vanished without a word, also those that have no call on the way; no
    # client counts them.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

_numbers = itertools.count()


def client_options(target_name=None):
    """Options of one connection of its own: channels made with them never share a connection.

    `target_name`: the name that the peer's certificate must have, when it is not the address.
    """
    options = [*_CLIENT, ("grpc.use_local_subchannel_pool", 1), ("boardbench.connection", next(_numbers))]
    if target_name is not None:
        options.append(("grpc.ssl_target_name_override", target_name))
    return options


def server_options():
    """Options of a server."""
    return list(_SERVER)


def open_channel(address, credentials, target_name=None):
    """A `grpc.aio` channel with a connection of its own; `credentials` None: plaintext."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=client_options())
    return grpc.aio.secure_channel(address, credentials, options=client_options(target_name))


def add_port(server, listen, credentials):
    """Binds the server to `host:port`; returns the port. OSError when it cannot be had."""
    try:
        if credentials is None:
            port = server.add_insecure_port(listen)
        else:
            port = server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {listen}: {error}") from None
    if not port:
        raise OSError(f"cannot listen on {listen}")
    return port
