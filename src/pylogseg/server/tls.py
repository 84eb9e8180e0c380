"""TLS of one connection: the handshake, and answers that go in pieces, as no system call sends files encrypted."""

from __future__ import annotations

import os
import re
import socket as sockets
import ssl
from collections.abc import Iterable
from typing import Any, NoReturn

from pylogseg.env.file_errors import storage_error
from pylogseg.errors import RequestError, StorageError

_Path = str | os.PathLike[str]

_PIECE_BYTES = 256 << 10
#: The first byte of a handshake of TLS.
_HANDSHAKE = b"\x16"
#: What OpenSSL says of a handshake, for whoever has to find the mistake.
_REASONS = {
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the certificate of this server: give it the CA",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not trust the certificate of this server: give it the CA",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses the certificate of this server: its name or its CA is another",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and this server wants one (--tls-ca)",
    "CERTIFICATE_VERIFY_FAILED": "the certificate of the client is not signed by the CA that this server was given",
    "UNSUPPORTED_PROTOCOL": "the client speaks only versions of TLS before 1.2",
    "NO_SHARED_CIPHER": "client and server have no cipher in common",
}
#: What is wrong with the dates of a certificate, by OpenSSL's number (X509_V_ERR_...).
_DATES = {
    9: "the certificate of the client, or one that signed it, is not valid yet: compare the clocks",
    10: "the certificate of the client, or one that signed it, has expired: renew it",
}


def context(cert: _Path, key: _Path | None, ca: _Path | None) -> ssl.SSLContext:
    """Return the settings of a server: its certificate, and the CA of clients, if they need one.

    Raises RequestError or StorageError if the files cannot be read, or do not fit together.
    """
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    settings.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could ask for new keys again and again, and keep a processor busy.
    settings.options |= ssl.OP_NO_RENEGOTIATION
    cert = os.fspath(cert)
    key = cert if key is None else os.fspath(key)
    for path in (cert, key):
        _check_file(path)
    try:
        settings.load_cert_chain(cert, key, password=lambda: _refuse_password(key))
    except ssl.SSLError as error:
        mismatch = error.reason == "KEY_VALUES_MISMATCH"
        fault = "the key does not belong to the certificate" if mismatch else f"not usable in TLS ({_reason(error)})"
        raise RequestError(f"{cert}, {key}: {fault}: give a certificate and its private key in PEM") from None
    if ca is not None:
        ca = os.fspath(ca)
        _check_file(ca)
        try:
            settings.load_verify_locations(ca)
        except ssl.SSLError as error:
            raise RequestError(f"{ca}: there is no certificate in PEM in it ({_reason(error)})") from None
        settings.verify_mode = ssl.CERT_REQUIRED
    return settings


def _refuse_password(key: str) -> NoReturn:
    raise RequestError(f"{key}: the key is encrypted: give one without a password (openssl pkey -in KEY -out PLAIN)")


def _check_file(path: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise storage_error(path, "read", error) from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


#: Names of attributes in a certificate that Java writes as short ones.
_ATTRIBUTES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


def _format_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return the name in a certificate as Kafka has it (RFC 2253): the last part comes first."""
    parts = ["+".join(f"{_ATTRIBUTES.get(name, name)}={_escape(value)}" for name, value in part) for part in subject]
    return ",".join(reversed(parts))


def _escape(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    escaped = f"\\{escaped}" if escaped[:1] in ("#", " ") else escaped
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") and len(value) > 1 else escaped


class Channel:
    """A connection that switches to TLS; `socket` replaces the given one."""

    def __init__(self, settings: ssl.SSLContext, socket: sockets.socket) -> None:
        socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        self.socket = settings.wrap_socket(socket, server_side=True, do_handshake_on_connect=False)
        #: The name in the client's certificate; empty if it has none.
        self.peer = ""

    def shake_hands(self, seconds: float) -> str:
        """Agree on keys with the client; returns the version and the cipher.

        Raises RequestError that says what is wrong, or TimeoutError.
        """
        self.socket.settimeout(seconds)
        first = sockets.socket.recv(self.socket, 1, sockets.MSG_PEEK)
        if first not in (_HANDSHAKE, b""):
            raise RequestError("the client does not speak TLS, and this server does (security.protocol=SSL, SASL_SSL)")
        try:
            self.socket.do_handshake()
        except ssl.SSLEOFError:
            raise RequestError("the client disconnected during the handshake") from None
        except ssl.SSLError as error:
            dated = _DATES.get(getattr(error, "verify_code", 0))
            raise RequestError(dated or _REASONS.get(error.reason or "", _reason(error))) from None
        certificate: Any = self.socket.getpeercert() or {}
        self.peer = _format_name(certificate.get("subject", ()))
        cipher = self.socket.cipher()
        return f"{self.socket.version()} {cipher[0] if cipher else ''}"

    def send(self, parts: Iterable[Any]) -> None:
        """Send an answer: bytes, and slices of files."""
        pending: list[Any] = []
        size = 0
        for part in parts:
            if isinstance(part, bytes):
                pending.append(part)
                size += len(part)
                continue
            position, end = part.position, part.position + part.size
            while position < end:
                piece = part.file.view(position, min(_PIECE_BYTES, end - position))
                if not len(piece):
                    raise StorageError(part.file.path, "read", "it was cut while it was sent")
                position += len(piece)
                pending.append(piece)
                size += len(piece)
                if size >= _PIECE_BYTES:
                    self.socket.sendall(b"".join(pending))
                    pending, size = [], 0
        if size:
            self.socket.sendall(b"".join(pending))
