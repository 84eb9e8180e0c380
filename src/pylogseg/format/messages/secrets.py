"""Secret settings: Kafka's passwords, and all settings that Kafka does not know."""

from __future__ import annotations

import re

from pylogseg.format.messages.schema import public_settings

MASK = "********"
#: Records with secrets, and the fields of a user that are.
SCRAM, SCRAM_SECRETS, CONFIG = "UserScramCredentialRecord", ("salt", "storedKey", "serverKey"), "ConfigRecord"
#: Types of resources by their numbers in records.
RESOURCES = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.(?P<name>.+)")
_OF_CONNECTOR = re.compile(
    r"passw|secret|token|credential|jaas|passphrase|private|(^|[._-])(api|access|account|sas|ssl\.keystore)[._-]?key"
    r"|keystore\.certificate\.chain|truststore\.certificates|(^|[._-])(pwd|auth)($|[._-])",
    re.IGNORECASE,
)
_IN_VALUE = re.compile(r"(?i)(passw(or)?d|secret|token|pwd)\s*=|://[^/@\s]+:[^/@\s]+@")


def is_secret(resource: int, name: str) -> bool:
    """True if a setting is secret: a password to Kafka, or a name that Kafka does not know, as of a plugin.

    A broker's setting may be that of one listener, and of one SASL mechanism of it.
    """
    kind = RESOURCES.get(resource, "")
    if kind == "BROKER_LOGGER":  # names of loggers and levels
        return False
    public = public_settings(kind)
    if name in public:
        return False
    match = _OF_LISTENER.fullmatch(name) if kind == "BROKER" else None
    return match is None or not (match["name"] in public or match["name"].partition(".")[2] in public)


def is_secret_of_connector(name: str, value: str) -> bool:
    """True if a connector's setting looks secret: only the connector's plugin knows its secrets."""
    return _OF_CONNECTOR.search(name) is not None or _IN_VALUE.search(value) is not None
