"""Settings of a client: addresses, TLS and login, from a properties file of Java's clients or librdkafka's.

Passwords stand in no message, in no `repr`, and in no URL: one in a URL is refused.
"""

from __future__ import annotations

import os
import re
import shlex
import ssl
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pylogseg.env.urls import CLUSTER_SCHEME
from pylogseg.errors import PylogsegError, RequestError
from pylogseg.format.files.properties import parse_properties
from pylogseg.live.msk import MSK_IAM, signer_of

#: Names a properties file for each cluster that is read without one.
ENVIRONMENT = "PYLOGSEG_CLUSTER"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", MSK_IAM)
_PORT = 9092
#: Names of librdkafka, and what Java calls them.
_LIBRDKAFKA = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
}
_JAAS = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_VARIABLE = re.compile(r"\$\{env:([^}]+)\}")

Token = Callable[[], str]


@dataclass(frozen=True)
class ClientSettings:
    """The way of a client into a cluster."""

    servers: tuple[tuple[str, int], ...]  #: Hosts and ports that are asked for the other brokers.
    protocol: str = "PLAINTEXT"  #: One of `PROTOCOLS`.
    mechanism: str = "PLAIN"  #: One of `MECHANISMS`, for protocols with a login.
    user: str = ""
    password: str = field(default="", repr=False)
    token: Token | None = field(default=None, repr=False)
    token_command: tuple[str, ...] = field(default=(), repr=False)  #: A program that prints a token.
    ca_file: str = ""  #: In PEM, as the other files; without it the system's authorities are trusted.
    certificate_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    checks_host: bool = True
    client_id: str = "pylogseg"
    rack: str = ""  #: A broker in it is read from, if the cluster names one.

    @property
    def is_by_token(self) -> bool:
        """True if the login is OAUTHBEARER on the wire."""
        return self.mechanism in ("OAUTHBEARER", MSK_IAM)

    @property
    def address(self) -> str:
        """Hosts and ports as in a URL."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)

    def make_tls(self) -> ssl.SSLContext | None:
        """Return a context of TLS; None without it. RequestError for a file that is no PEM."""
        if self.protocol not in ("SSL", "SASL_SSL"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.certificate_file:
                key = self.key_file or None
                context.load_cert_chain(self.certificate_file, key, self.key_password or None)
        except (OSError, ValueError) as error:
            names = ", ".join(filter(None, (self.ca_file, self.certificate_file, self.key_file)))
            raise RequestError(f"{names}: not read as PEM: {error}") from error
        context.check_hostname = self.checks_host
        return context

    def read_token(self) -> str:
        """Return a new token for OAUTHBEARER, from the callable or the program."""
        if self.token is not None:
            return self.token()
        try:
            done = subprocess.run(self.token_command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            reason = getattr(error, "stderr", None) or type(error).__name__
            raise RequestError(f"{self.token_command[0]}: no token: {str(reason).strip()}") from None
        return done.stdout.strip()


def settings_of(host: str, options: Mapping[str, Any]) -> ClientSettings:
    """Return the settings for the host part of a URL, which may be empty if a file names ``bootstrap.servers``.

    The option ``cluster`` is the path of a properties file, or a mapping of such properties; by default the file that
    ``PYLOGSEG_CLUSTER`` names. ``token`` is a callable for OAUTHBEARER. RequestError for a setting that is malformed,
    and for an address or a login that is missing.
    """
    if "@" in host:
        raise RequestError(
            f"{CLUSTER_SCHEME}{host.rpartition('@')[2]}: "
            "a URL holds no user or password: name them in a properties file"
        )
    chosen = options.get("cluster") or os.environ.get(ENVIRONMENT) or {}
    properties = dict(chosen) if isinstance(chosen, Mapping) else _read_file(os.fspath(chosen))
    where = "cluster" if isinstance(chosen, Mapping) else os.fspath(chosen)
    values = {_LIBRDKAFKA.get(name, name): _expand(str(value), where) for name, value in properties.items()}
    servers = host or values.get("bootstrap.servers", "")
    if not servers:
        raise RequestError(
            f"{CLUSTER_SCHEME}: no address: write {CLUSTER_SCHEME}HOST:PORT, or bootstrap.servers in {where}"
        )
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    by_iam = "IAMLoginModule" in values.get("sasl.jaas.config", "")
    mechanism = MSK_IAM if by_iam else values.get("sasl.mechanism", "PLAIN").upper()
    if protocol not in PROTOCOLS:
        raise RequestError(f"{where}: security.protocol {protocol!r}: choose among {', '.join(PROTOCOLS)}")
    jaas: dict[str, str] = dict(_JAAS.findall(values.get("sasl.jaas.config", "")))
    addresses = tuple(_address(address) for address in servers.split(",") if address.strip())
    token = options.get("token")
    if mechanism == MSK_IAM and protocol.startswith("SASL"):
        token = signer_of(values, jaas, [host for host, _ in addresses], where)
    settings = ClientSettings(
        addresses,
        protocol,
        mechanism,
        values.get("sasl.username") or jaas.get("username", ""),
        values.get("sasl.password") or jaas.get("password", ""),
        token,
        tuple(shlex.split(values.get("sasl.oauthbearer.token.command", ""))),
        values.get("ssl.truststore.location", ""),
        values.get("ssl.keystore.location", ""),
        values.get("ssl.key.location", ""),
        values.get("ssl.key.password", ""),
        values.get("ssl.endpoint.identification.algorithm", "https").lower() in ("https",),
        values.get("client.id", "pylogseg"),
        values.get("client.rack", ""),
    )
    _check(settings, values, where)
    return settings


def _check(settings: ClientSettings, values: Mapping[str, str], where: str) -> None:
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        kind = values.get(name.replace("location", "type"), "PEM").upper()
        if values.get(name) and (kind != "PEM" or values[name].endswith((".jks", ".p12", ".pfx"))):
            raise RequestError(f"{where}: {name}: {values[name]}: only PEM is read; keytool and openssl convert it")
    if not settings.protocol.startswith("SASL"):
        return
    if settings.mechanism not in MECHANISMS:
        raise RequestError(f"{where}: sasl.mechanism {settings.mechanism!r}: choose among {', '.join(MECHANISMS)}")
    if settings.is_by_token:
        if settings.token is None and not settings.token_command:
            raise RequestError(f"{where}: OAUTHBEARER needs sasl.oauthbearer.token.command, or token= in Python")
    elif not settings.user or not settings.password:
        raise RequestError(f"{where}: {settings.mechanism} needs sasl.username and sasl.password, or sasl.jaas.config")


def _read_file(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            return parse_properties(file.read(1 << 20), path)
    except OSError as error:
        raise RequestError(f"{path}: the properties of a cluster cannot be read: {error.strerror}") from error
    except PylogsegError as error:
        raise RequestError(f"{path}: no properties file: {error}") from error


def _expand(text: str, where: str) -> str:
    """Put variables of the environment where ``${env:NAME}`` stands, as Kafka's EnvVarConfigProvider does."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise RequestError(f"{where}: ${{env:{match[1]}}}: the environment has no {match[1]}")
        return os.environ[match[1]]

    return _VARIABLE.sub(value, text)


def _address(text: str) -> tuple[str, int]:
    text = text.strip().rpartition("://")[2]  # librdkafka and Kafka's listeners allow PROTOCOL://
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, str(_PORT)
    if not port.isdecimal() or not 0 < int(port) < 1 << 16 or not host:
        raise RequestError(f"{CLUSTER_SCHEME}{text}: not of the form HOST:PORT")
    return host.strip("[]"), int(port)
