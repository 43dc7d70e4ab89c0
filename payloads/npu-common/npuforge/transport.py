"""Servers and channels by the name of the engine that carries them: `lean` (ours) or `grpc` (grpc.aio).

Both speak the same wire. The lean one is the default: it copies less, and payloads are what this cluster is about.
"""

import grpc

from npuforge import channels, security
from npuforge.config import ConfigError
from npuforge.lean.client import Channel
from npuforge.lean.server import Server

ENGINES = ("lean", "grpc")
# What the table [transport] of every program's config has: this engine, and what `security.load_security` reads.
KEYS = {
    "engine": (str, "lean"),
    "security": (str, security.TLS),
    "ca_file": (str, ""),
    "certificate_file": (str, ""),
    "key_file": (str, ""),
    "token_file": (str, ""),
}


def check_engine(name):
    """ConfigError for an engine that is not known."""
    if name not in ENGINES:
        raise ConfigError(f"[transport] engine is '{name}'; it can be {' or '.join(ENGINES)}")


def open_channel(engine, address, sec, target_name):
    """A channel with a connection of its own; `target_name` is the name that the peer's certificate must have."""
    if engine == "grpc":
        return channels.open_channel(address, security.channel_credentials(sec), target_name)
    return Channel(address, security.client_tls(sec), target_name)


def bind_server(engine, listen, sec, handlers):
    """(a server that is to be started, its port). OSError when the port cannot be had."""
    if engine == "grpc":
        server = grpc.aio.server(options=channels.server_options())
        server.add_generic_rpc_handlers((handlers,))
        return server, channels.add_port(server, listen, security.server_credentials(sec))
    server = Server(security.server_tls(sec))
    server.add_generic_rpc_handlers((handlers,))
    try:
        return server, server.bind(listen)
    except (OSError, ValueError, OverflowError) as error:
        raise OSError(f"cannot listen on {listen}: {error}") from None
