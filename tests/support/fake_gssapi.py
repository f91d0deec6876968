"""The part of the package `gssapi` that gregor uses, without Kerberos: tokens are texts, keytabs lists of names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from gregor.protocol.sasl import kerberos

REALM = "REALM"
NO_KEY = 2529639107
"""KRB5_FCC_NOFILE, as the package has it."""
_STATUSES = {NO_KEY: ["No credentials cache found"], 0: ["Unknown error"], 9: ["Invalid token was supplied"]}


class GSSError(Exception):
    def __init__(self, maj_code: int, min_code: int) -> None:
        super().__init__(maj_code, min_code)
        self.maj_code, self.min_code = maj_code, min_code

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        return _STATUSES[code]


class Name:
    def __init__(self, text: str, kind: str) -> None:
        self.text = text

    def canonicalize(self, mechanism: str) -> Name:
        return Name(f"{self.text}@{REALM}", mechanism)

    def __str__(self) -> str:
        return self.text

    def __bytes__(self) -> bytes:
        return self.text.encode("latin-1")


class Credentials(NamedTuple):
    name: Name | None
    usage: str
    mechs: list[str]
    store: dict[str, str] | None


def new_credentials(**arguments: Any) -> Credentials:
    made = Credentials(**arguments)
    keytab = (made.store or {}).get("keytab")
    if keytab is not None and str(made.name) not in keytab.split():
        raise GSSError(9, NO_KEY)
    return made


class Message(NamedTuple):
    message: bytes


class SecurityContext:
    __DEFER_STEP_ERRORS__ = True

    def __init__(self, creds: Credentials, usage: str, name: Name | None = None, **rest: Any) -> None:
        assert creds.usage == usage
        self.complete = False
        self.initiator_name = None
        self._mine, self._target = creds.name, name

    def step(self, token: bytes | None) -> bytes | None:
        assert not self.__DEFER_STEP_ERRORS__
        if token is None:
            return f"{self._mine} to {self._target}".encode()
        if self._target is not None:
            self.complete = token == b"welcome"
        else:
            name, to, _ = token.decode("latin-1").partition(" to ")
            self.complete, self.initiator_name = to != "", Name(name, "")
        if not self.complete:
            raise GSSError(9, 0)
        return None if self._target is not None else b"welcome"

    def wrap(self, message: bytes, encrypt: bool) -> Message:
        assert self.complete and not encrypt
        return Message(b"wrapped:" + message)

    def unwrap(self, token: bytes) -> Message:
        if not token.startswith(b"wrapped:"):
            raise GSSError(9, 0)
        return Message(token[len(b"wrapped:") :])


class _Flags:
    mutual_authentication = integrity = 0


@contextmanager
def fake_gssapi(present: bool = True) -> Iterator[None]:
    """Let gregor find this package; with `present` False it finds none."""
    package: Any = ModuleType("gssapi")
    package.Name, package.Credentials, package.SecurityContext = Name, new_credentials, SecurityContext
    package.MechType = type("MechType", (), {"kerberos": "krb5"})
    package.NameType = type("NameType", (), {"kerberos_principal": "principal", "hostbased_service": "service"})
    package.RequirementFlag = _Flags
    package.exceptions = type("exceptions", (), {"GSSError": GSSError})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "gssapi", package if present else None)
        kerberos.library.cache_clear()
        yield
    kerberos.library.cache_clear()
