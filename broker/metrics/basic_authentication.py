"""Basic authentication (RFC 7617) of those who read /metrics: one user, in a file that only the broker's user reads."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import os

from gregor.config.definitions import ConfigError
from gregor.config.listeners import METRICS_PASSWORD_FILE

_MAX_FILE_BYTES = 4096
_OTHERS = 0o077
_SCHEME = b"basic "
_REMEDY = "write one line USER:PASSWORD into it, and make it readable by the broker's user only (chmod 600)"


class BasicAuthentication:
    """Compares the header of a request with the one user. Neither is in its `repr`."""

    __slots__ = ("_expected",)

    def __init__(self, credentials: bytes) -> None:
        self._expected = _digest(credentials)

    @classmethod
    def of_file(cls, path: str) -> BasicAuthentication:
        """Read a file with `USER:PASSWORD`. Raises ConfigError, with the key and the remedy."""
        try:
            with open(path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(_MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ConfigError(METRICS_PASSWORD_FILE, path, f"cannot be read: {error.strerror}; {_REMEDY}") from None
        if mode & _OTHERS:
            raise ConfigError(METRICS_PASSWORD_FILE, path, f"has mode {mode & 0o777:04o}; {_REMEDY}")
        credentials = content.rstrip(b"\r\n")
        user, colon, password = credentials.partition(b":")
        if not (user and colon and password) or b"\n" in credentials or len(content) > _MAX_FILE_BYTES:
            raise ConfigError(METRICS_PASSWORD_FILE, path, f"does not have this form; {_REMEDY}")
        return cls(credentials)

    def admits(self, header: bytes) -> bool:
        """Return whether the value of the header Authorization has the user and the password; in a time that does not
        depend on how much of them is right."""
        if header[: len(_SCHEME)].lower() != _SCHEME:
            return False
        try:
            given = binascii.a2b_base64(header[len(_SCHEME) :].strip(), strict_mode=True)
        except binascii.Error:
            return False
        return hmac.compare_digest(_digest(given), self._expected)


def _digest(credentials: bytes) -> bytes:
    return hashlib.sha256(credentials).digest()
