"""The mechanism PLAIN (RFC 4616): `[authorization id] NUL user NUL password`, in one message.

The texts for clients are those of Kafka's PlainSaslServer, which clients show.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from gregor.protocol.sasl.mechanism import PLAIN, AuthenticationFailed

_PARTS = 3
_WRONG = "Authentication failed: Invalid username or password"
_OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class PasswordTable:
    """Users and passwords. The comparison lasts equally long for each user, known or unknown."""

    __slots__ = ("_digests", "_unknown")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {user: _digest(password) for user, password in passwords.items()}
        self._unknown = bytes(hashlib.sha256().digest_size)

    def verifies(self, user: str, password: str) -> bool:
        known = self._digests.get(user)
        equal = hmac.compare_digest(self._unknown if known is None else known, _digest(password))
        return equal and known is not None


class PlainServer:
    """The server side of PLAIN."""

    def __init__(self, passwords: PasswordTable) -> None:
        self._passwords = passwords
        self.done = False
        self.principal_name = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def respond(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0", _PARTS)
        except UnicodeDecodeError:
            raise AuthenticationFailed("the message of PLAIN is not UTF-8") from None
        if len(parts) != _PARTS:
            raise AuthenticationFailed(f"the message of PLAIN has {len(parts)} parts, not {_PARTS}")
        authorization_id, user, password = parts
        if not user or not password:
            raise AuthenticationFailed("the message of PLAIN has no user or no password")
        if not self._passwords.verifies(user, password):
            raise AuthenticationFailed(f"the user {user!r} is unknown or the password is wrong", for_peer=_WRONG)
        if authorization_id not in ("", user):
            raise AuthenticationFailed(f"the user {user!r} requests another identity", for_peer=_OTHER_ID)
        self.done, self.principal_name = True, user
        return b""


class PlainClient:
    """The client side of PLAIN."""

    name = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def respond(self, challenge: bytes) -> None:
        return None


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()
