"""A small certificate authority for a fleet: who of the NPU cluster is who.

Each board, the scheduler and the load generator get a certificate with their *name*, not their address: boards move
between addresses, and a node that shows another node's certificate is refused. Everything is in one folder:
`ca.pem`, `ca-key.pem`, `NAME.pem`, `NAME-key.pem`, and `token`, which a node shows when it registers. Keys and token
are readable by their owner alone. Beside the scheduler and the nodes nobody needs the CA's key.
"""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from boardbench.errors import InputError, RigError

SCHEDULER_NAME = "npu-scheduler"
CLIENT_NAME = "npu-load"
CA_NAME = "boardbench fleet CA"
CA_DAYS = 3650
LEAF_DAYS = 825
# A certificate with less than this left is made anew.
RENEW_DAYS = 30
# Boards without a battery boot with a clock of the past; a certificate of today would not be valid there yet.
BACKDATE_DAYS = 730
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class Issued:
    """A file of the folder: its name, whether it was made now, and until when it is valid (None: a token)."""

    name: str
    made: bool
    expires: datetime.datetime | None


def issue(folder: Path, names: Iterable[str], *, renew: bool = False) -> tuple[Issued, ...]:
    """The CA, the token and a certificate for every name, made where it is missing, foreign or soon over.

    A second call changes nothing. `renew` makes all certificates and the token anew, under the same CA. Raises
    InputError for a name that cannot be one or two that are the same, RigError when the folder cannot be used.
    """
    wanted = tuple(names)
    for name in wanted:
        if not name or len(name) > 64 or not all(part.isalnum() and part.isascii() for part in name.split("-")):
            raise InputError(f"'{name}' cannot be a name in a certificate", advice="use letters, digits and hyphens")
    if len(set(wanted)) != len(wanted) or "ca" in wanted:
        raise InputError("two certificates would have the same name", advice="rename a board")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority, made = _authority(folder)
        issued = [Issued("ca", made, authority.certificate.not_valid_after_utc), _token(folder, renew)]
        issued += [_leaf(folder, name, authority, renew or made) for name in wanted]
    except OSError as error:
        raise RigError(f"the certificates cannot be kept: {error.strerror}", where=str(error.filename)) from None
    return tuple(issued)


@dataclass(frozen=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _authority(folder: Path) -> tuple[_Authority, bool]:
    path, key_path = folder / "ca.pem", folder / "ca-key.pem"
    if path.exists() != key_path.exists():
        raise InputError(
            "the CA is there only in half", where=str(folder), advice="restore ca.pem and ca-key.pem, or remove both"
        )
    if path.exists():
        certificate, key = _read(path, key_path)
        if _days_left(certificate) > RENEW_DAYS:
            return _Authority(certificate, key), False
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, CA_NAME)])
    certificate = (
        _builder(subject, subject, key, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_pair(path, certificate, key_path, key)
    return _Authority(certificate, key), True


def _leaf(folder: Path, name: str, authority: _Authority, renew: bool) -> Issued:
    path, key_path = folder / f"{name}.pem", folder / f"{name}-key.pem"
    if not renew and path.exists() and key_path.exists():
        certificate, _ = _read(path, key_path)
        if _signed_by(certificate, authority) and _days_left(certificate) > RENEW_DAYS:
            return Issued(name, False, certificate.not_valid_after_utc)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, authority.certificate.subject, key, LEAF_DAYS)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        # A node serves the scheduler and calls it: both ends of a connection with one certificate.
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    _write_pair(path, certificate, key_path, key)
    return Issued(name, True, certificate.not_valid_after_utc)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=BACKDATE_DAYS))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _read(path: Path, key_path: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
    except (ValueError, TypeError):
        raise InputError("this is no certificate with its key", where=str(path), advice="remove the pair") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise InputError("the key is not that of the certificate", where=str(key_path), advice="remove the pair")
    return certificate, key


def _days_left(certificate: x509.Certificate) -> float:
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left.total_seconds() / 86400


def _signed_by(certificate: x509.Certificate, authority: _Authority) -> bool:
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _token(folder: Path, renew: bool) -> Issued:
    path = folder / "token"
    if path.exists() and not renew:
        return Issued("token", False, None)
    _write(path, secrets.token_urlsafe(_TOKEN_BYTES).encode() + b"\n", 0o600)
    return Issued("token", True, None)


def _write_pair(path: Path, certificate: x509.Certificate, key_path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(key_path, private, 0o600)
    _write(path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    partial = path.with_name(path.name + ".partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "wb") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
