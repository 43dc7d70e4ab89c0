"""Who may talk: mutual TLS of the fleet's own CA, or plaintext when it is asked for by name.

The name that a certificate must have is the peer's role or node id, not its address: boards move between addresses,
and two boards with swapped addresses must not answer for each other.
"""

import collections
import os
import ssl
import stat

import grpc

SCHEDULER_NAME = "npu-scheduler"
CLIENT_NAME = "npu-load"

TLS = "tls"
PLAINTEXT = "plaintext"

# Private: nobody but their owner may read them.
_PRIVATE = stat.S_IRWXG | stat.S_IRWXO

Security = collections.namedtuple("Security", "kind ca certificate key token chain")
Security.__doc__ = """What a program needs to prove who it is: PEM bytes (None for plaintext), the token ("": none),
and the paths of certificate and key."""


class SecurityError(Exception):
    """The files or the words that say who may talk are wrong; one sentence."""


def load_security(options, base="."):
    """`Security` from a `[transport]` table.

    Keys: `security` ("tls", the default, or "plaintext"), `ca_file`, `certificate_file`, `key_file`, `token_file`;
    relative paths start at `base`. SecurityError when something is missing, unreadable or open to others.
    """
    kind = options.get("security", TLS)
    token = _token(options.get("token_file"), base)
    files = [options.get(key) for key in ("ca_file", "certificate_file", "key_file")]
    if kind == PLAINTEXT:
        if any(files):
            raise SecurityError('security is "plaintext", but certificates are named: remove one of the two')
        return Security(PLAINTEXT, None, None, None, token, None)
    if kind != TLS:
        raise SecurityError(f'[transport] security is "{kind}"; it can be "tls" or "plaintext"')
    if not all(files):
        raise SecurityError(
            "[transport] needs ca_file, certificate_file and key_file (`./inv certs` makes them); "
            'a network without TLS must be asked for by name: security = "plaintext"'
        )
    ca, certificate, key = (_read(name, base, private=index == 2) for index, name in enumerate(files))
    chain = tuple(os.path.join(base, os.path.expanduser(name)) for name in files[1:])
    return Security(TLS, ca, certificate, key, token, chain)


def _token(name, base):
    if not name:
        return ""
    text = _read(name, base, private=True).decode("ascii", "replace").strip()
    if len(text) < 16:
        raise SecurityError(f"{name}: the token has {len(text)} characters; at least 16 keep it from being guessed")
    return text


def _read(name, base, private):
    path = os.path.join(base, os.path.expanduser(name))
    try:
        with open(path, "rb") as file:
            if private and os.fstat(file.fileno()).st_mode & _PRIVATE:
                raise SecurityError(f"{path} can be read by others: chmod 600 it")
            return file.read()
    except OSError as error:
        raise SecurityError(f"{path} cannot be read: {error.strerror}") from None


def channel_credentials(security):
    """Credentials of a client, None for plaintext."""
    if security.kind == PLAINTEXT:
        return None
    return grpc.ssl_channel_credentials(security.ca, security.key, security.certificate)


def server_credentials(security):
    """Credentials of a server that takes only clients of the same CA, None for plaintext."""
    if security.kind == PLAINTEXT:
        return None
    return grpc.ssl_server_credentials(
        [(security.key, security.certificate)], root_certificates=security.ca, require_client_auth=True
    )


def _context(sec, purpose):
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cadata=sec.ca.decode("ascii", "replace"))
        context.load_cert_chain(*sec.chain)
    except (ssl.SSLError, ValueError) as error:
        raise SecurityError(f"the certificates cannot be used: {error}") from None
    return context


def client_tls(sec):
    """A TLS context of a client that checks the server's name, None for plaintext."""
    return None if sec.kind == PLAINTEXT else _context(sec, ssl.PROTOCOL_TLS_CLIENT)


def server_tls(sec):
    """A TLS context of a server that takes only clients of the same CA, None for plaintext."""
    return None if sec.kind == PLAINTEXT else _context(sec, ssl.PROTOCOL_TLS_SERVER)


def peer_names(context):
    """The names in the certificate of an RPC's caller; None in plaintext."""
    if context.auth_context().get("transport_security_type", [b""])[0] != b"ssl":
        return None
    identities = context.peer_identities() or []
    return {identity.decode("utf-8", "replace") for identity in identities}
