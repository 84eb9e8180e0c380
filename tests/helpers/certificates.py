"""Certificates for tests of TLS, made by OpenSSL's command: a CA, a server, a client, and a CA that nobody knows."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificates(NamedTuple):
    """Paths of files in PEM."""

    ca: str
    server: str
    server_key: str
    client: str
    client_key: str
    other_ca: str


def make(folder: Path) -> Certificates:
    """Make them in a folder, good for a day."""
    new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    for name in ("ca", "other"):
        signs = "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=keyCertSign"
        _openssl(folder, f"req -x509 {new} -days 1 -subj /CN={name} {signs} -keyout {name}.key -out {name}.pem")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        _openssl(folder, f"req {new} -subj /CN={name} -keyout {name}.key -out {name}.csr")
        by = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 1"
        _openssl(folder, f"x509 -req -in {name}.csr {by} -extfile names -out {name}.pem")
    return Certificates(
        *(str(folder / each) for each in
          ("ca.pem", "server.pem", "server.key", "client.pem", "client.key", "other.pem"))
    )  # fmt: skip


def expired(files: Certificates, folder: Path) -> str:
    """Return a certificate for the key of the client that ended as it began, by the same CA."""
    of = Path(files.ca).parent
    by = f"-CA {of / 'ca.pem'} -CAkey {of / 'ca.key'} -CAcreateserial -days 0"
    _openssl(folder, f"x509 -req -in {of / 'client.csr'} {by} -extfile {of / 'names'} -out expired.pem")
    return str(folder / "expired.pem")


def _openssl(folder: Path, arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments.split()], cwd=folder, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
