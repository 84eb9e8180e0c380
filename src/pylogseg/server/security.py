"""Logins and rights: TLS, client certificates and passwords, and the warnings at the start where these are missing."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pylogseg.env.file_errors import storage_error
from pylogseg.env.filesystem import Path
from pylogseg.errors import RequestError
from pylogseg.server.sasl import PLAIN, Users, parse_users

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Security:
    """Authentication of clients, and encryption; by default there is neither.

    Parameters
    ----------
    tls_cert : path, optional
        The server's certificate with its chain, in PEM: clients then have to speak TLS, 1.2 at least.
    tls_key : path, optional
        Its private key, without a password; by default it lies in the same file.
    tls_ca : path, optional
        Certificates in PEM: only clients that have one signed by these are served.
    users : path or mapping of str to str, optional
        A file with lines ``name:password``, or names with passwords: clients then have to log in by SASL. In place of a
        password there may be what Kafka stores of one: ``SCRAM-SHA-256=salt=…,stored_key=…,server_key=…,iterations=…``.
    mechanisms : sequence of str
        The mechanisms of SASL that are allowed; by default ``PLAIN``, ``SCRAM-SHA-256`` and ``SCRAM-SHA-512``.
    acls : bool
        True if ACLs are kept and enforced, as by Kafka's ``StandardAuthorizer``; only where clients may write. By
        default whoever can connect may do everything, and requests about ACLs are refused.
    super_users : sequence of str
        Principals that may do everything in any case, as ``"User:admin"``. A client without a login is
        ``"User:ANONYMOUS"``.
    allow_everyone_if_no_acl_found : bool
        True if everybody may use a topic, group or transactional id that no ACL is about.
    """

    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    users: Path | Mapping[str, str] | None = field(default=None, repr=False)
    mechanisms: Sequence[str] = ()
    acls: bool = False
    super_users: Sequence[str] = ()
    allow_everyone_if_no_acl_found: bool = False


class Guard:
    """The parts of `Security` that are in force: checked, and loaded.

    Raises RequestError or StorageError for what does not fit together or cannot be read.
    """

    def __init__(self, security: Security) -> None:
        self.tls: ssl.SSLContext | None = None
        if security.tls_cert is not None:
            from pylogseg.server import tls  # the import of OpenSSL takes longer than all else here

            self.tls = tls.context(security.tls_cert, security.tls_key, security.tls_ca)
        elif security.tls_key is not None or security.tls_ca is not None:
            raise RequestError("a key or a CA for TLS needs a certificate too (--tls-cert)")
        self.asks_certificates = security.tls_ca is not None
        if security.mechanisms and security.users is None:
            raise RequestError("mechanisms of SASL need users (--users)")
        self.acls, self.super_users = security.acls, tuple(security.super_users)
        self.allows_without_acls = security.allow_everyone_if_no_acl_found
        self._check_acls()
        self.users = None if security.users is None else Users(_load_users(security.users), security.mechanisms)

    def _check_acls(self) -> None:
        if not self.acls and (self.super_users or self.allows_without_acls):
            raise RequestError("super users and --allow-everyone-if-no-acl-found need ACLs: add --acls")
        for name in self.super_users:
            if not name.partition(":")[1]:
                raise RequestError(f"super user {name!r}: a principal has the form User:NAME")

    @property
    def is_open(self) -> bool:
        """True if every client that can connect may read."""
        return self.users is None and not self.asks_certificates

    def warnings(self) -> Iterator[str]:
        """Yield the risks of a server to which other machines can connect."""
        if self.tls is None and self.users is not None:
            if PLAIN in self.users.mechanisms:
                yield (
                    "passwords of PLAIN and all records cross the network readable to others: "
                    "add TLS (--tls-cert, --tls-key)"
                )
            else:
                yield "all records cross the network readable to others: add TLS (--tls-cert, --tls-key)"


def _load_users(users: Path | Mapping[str, str]) -> Mapping[str, str]:
    if isinstance(users, Mapping):
        return users
    path = os.fspath(users)
    try:
        with open(path, encoding="utf-8-sig") as file:  # editors of Windows put a mark at its beginning
            others = os.name != "nt" and os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            text = file.read()
    except OSError as error:
        raise storage_error(path, "read", error) from None
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: at position {error.start}: it is not in UTF-8") from None
    if others:
        _log.warning("%s: others on this machine can read the passwords: chmod 600", path)
    return parse_users(text, path)
