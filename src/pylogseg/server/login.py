"""The login of one connection: which requests it may send before, and the exchange of SASL."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from pylogseg.format.escape import printable
from pylogseg.format.messages import codes
from pylogseg.format.messages.wire import API_VERSIONS, Values
from pylogseg.server.sasl import Denied, Exchange, Users

#: The handshake, and what carries tokens.
SASL = (17, 36)
#: How late a refusal is told, so that passwords are not tried quickly: ``connection.failed.authentication.delay.ms``.
REFUSAL_DELAY_S = 0.1
#: Of a request before the login; as ``sasl.server.max.receive.size``.
MOST_BYTES_BEFORE = 512 << 10
_NO_MORE = "This server wants no login by SASL, or has had it."


class LoginState(enum.Enum):
    """How far a login is."""

    NEW = "new"
    #: A mechanism was chosen: tokens come in requests.
    TOKENS = "tokens"
    #: The same, chosen by version 0: tokens come alone, without a header.
    RAW_TOKENS = "raw tokens"
    DONE = "done"


class Said(NamedTuple):
    """An answer, and why the connection ends behind it; nothing if it goes on."""

    values: Values
    end: str = ""
    is_late: bool = False


class Login:
    """See the module; without users nobody has to log in."""

    def __init__(self, users: Users | None) -> None:
        self._users = users
        self._exchange: Exchange | None = None
        self.state = LoginState.DONE if users is None else LoginState.NEW
        self.user: str | None = None

    @property
    def is_done(self) -> bool:
        """True if the client may ask for all."""
        return self.state is LoginState.DONE

    def is_allowed(self, key: int) -> bool:
        """Return whether a request may be sent now."""
        if self.state is LoginState.DONE or key in SASL:
            return True
        return self.state is LoginState.NEW and key == API_VERSIONS

    def answer(self, key: int, version: int, values: Values) -> Said:
        if self.is_done:  # as a broker that wants no login, or that does not ask for it again
            return Said({"errorCode": codes.ILLEGAL_SASL_STATE, "errorMessage": _NO_MORE})
        if key == SASL[0]:
            return self._choose(version, values["mechanism"])
        if self.state is not LoginState.TOKENS:
            text = "SaslAuthenticate came without a handshake before it"
            return Said({"errorCode": codes.ILLEGAL_SASL_STATE, "errorMessage": text}, text)
        try:
            return Said({"authBytes": self.token(values["authBytes"])})
        except Denied as error:
            refused: dict[str, Any] = {
                "errorCode": codes.SASL_AUTHENTICATION_FAILED,
                "errorMessage": str(error),
            }
            return Said(refused, str(error), is_late=True)

    def _choose(self, version: int, mechanism: str) -> Said:
        assert self._users is not None
        if self.state is not LoginState.NEW:
            return Said({"errorCode": codes.ILLEGAL_SASL_STATE}, "it sent a second handshake of SASL")
        offered = self._users.mechanisms
        if mechanism not in offered:
            end = f"it wants to log in by {printable(mechanism)}; there are {', '.join(offered)}"
            return Said({"errorCode": codes.UNSUPPORTED_SASL_MECHANISM, "mechanisms": offered}, end)
        self._exchange = self._users.begin(mechanism)
        self.state = LoginState.TOKENS if version else LoginState.RAW_TOKENS
        return Said({"mechanisms": offered})

    def token(self, token: bytes) -> bytes:
        """Take a token and return the answer to it; raises `Denied`."""
        assert self._exchange is not None
        answer = self._exchange.step(token)
        if self._exchange.user is not None:
            self.user, self.state, self._exchange = self._exchange.user, LoginState.DONE, None
        return answer
