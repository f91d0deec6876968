"""Secrets that a test plants, and their search in bytes, in the forms in which they could leak."""

from __future__ import annotations

import base64
import contextlib
import secrets
import threading
from collections.abc import Iterable
from pathlib import Path

_POLL_S = 0.1
_GROUP = 3
"""Base64 encodes groups of three bytes, so a text has three forms within a longer one."""


def _forms(secret: bytes) -> set[bytes]:
    found = {secret, secret.hex().encode(), secret.hex().upper().encode(), repr(secret)[2:-1].encode()}
    for shift in range(_GROUP):
        inner = base64.b64encode(bytes(shift) + secret)
        # The first group may have foreign bytes, the last one is cut short.
        whole = inner[4 if shift else 0 : len(inner) - 4]
        found |= {whole, whole.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


class Secrets:
    """Secrets by name."""

    def __init__(self) -> None:
        self._forms: dict[str, set[bytes]] = {}

    def plant(self, name: str) -> str:
        """Return a new secret, which is known by this name."""
        text = f"Sec{secrets.token_hex(12)}"
        self.add(name, text)
        return text

    def add(self, name: str, secret: str | bytes) -> None:
        self._forms[name] = _forms(secret.encode() if isinstance(secret, str) else secret)

    def found(self, data: bytes | str, *, except_for: Iterable[str] = ()) -> list[str]:
        """Return the names of the secrets that are in these bytes."""
        text = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        names = self._forms.keys() - set(except_for)
        return sorted(name for name in names if any(form in text for form in self._forms[name]))


class Arguments:
    """Collects the arguments of all processes of this machine while it is entered."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="arguments")

    def _watch(self) -> None:
        while True:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    self.seen.add(path.read_bytes())
            if self._ended.wait(_POLL_S):
                return

    def __enter__(self) -> Arguments:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()
