"""Kerberos by the package `gssapi`, which calls the Kerberos library of the system; both are optional.

The library reads the realm and its KDCs from the file that KRB5_CONFIG names (/etc/krb5.conf). To accept a client costs
about 0.2 ms, without a KDC. To begin an exchange may wait for a KDC, so clients do that where they may block. With a
keytab the tickets are in memory; the library requests another one when half of its life is over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from gregor.protocol.sasl.gssapi import NewContext
from gregor.protocol.sasl.mechanism import AuthenticationFailed

if TYPE_CHECKING:
    from gregor.config.security.jaas import KerberosLogin

INSTALL = "pip install 'gregor[kerberos]'"
ANY_PRINCIPAL = "*"
_FIRST_CODE = 2**32 - 1765328384
"""The lowest minor code of Kerberos (ERROR_TABLE_BASE_krb5) as the package has it, without a sign."""
_REMEDIES = {
    6: "create the principal in the KDC, or correct the option principal",
    7: "compare sasl.kerberos.service.name and the host name of the address with the principal of the broker",
    24: "the keytab has an old key: export it again",
    31: "the keytab has another key than the KDC: export it again",
    32: "renew the ticket by kinit, or use a keytab",
    37: "compare the clocks of both machines and of the KDC",
    44: "the keytab has an old key: export it again",
    141: "run kinit, or set useKeyTab=true with keyTab and principal in sasl.jaas.config",
    156: "check that the KDC runs, and its address in the file that KRB5_CONFIG names (/etc/krb5.conf)",
    195: "run kinit, or set useKeyTab=true with keyTab and principal in sasl.jaas.config",
}
"""By the number of the error in Kerberos (RFC 4120, section 7.5.9, and the library's own ones)."""
_MAX_CAUSE_CHARS = 300
_MEANINGLESS = ("Success", "Unknown error")


class KerberosMissing(AuthenticationFailed):
    """The package is not installed, or the Kerberos library cannot be loaded."""


@cache
def library() -> Any:
    """Return the package `gssapi`. Raises KerberosMissing, with the cause and the line that installs it."""
    try:
        import gssapi
    except ImportError as error:
        raise KerberosMissing(
            f"SASL/GSSAPI needs the package gssapi ({error}); install it with: {INSTALL}. It is compiled with the"
            " Kerberos library of the system: apt-get install gcc libkrb5-dev"
        ) from None
    return gssapi


class _Context:
    """A security context whose errors are AuthenticationFailed."""

    def __init__(self, **arguments: Any) -> None:
        self._context = library().SecurityContext(**arguments)
        # Else the token of a failure would be returned, and the failure raised at the next call.
        self._context.__DEFER_STEP_ERRORS__ = False

    @property
    def established(self) -> bool:
        return bool(self._context.complete)

    @property
    def peer(self) -> str:
        name = bytes(_guarded(lambda: self._context.initiator_name))
        return _printable(name.decode("utf-8", "backslashreplace"))

    def step(self, token: bytes | None) -> bytes:
        return bytes(_guarded(lambda: self._context.step(token)) or b"")

    def wrap(self, message: bytes) -> bytes:
        return bytes(_guarded(lambda: self._context.wrap(message, False)).message)

    def unwrap(self, token: bytes) -> bytes:
        return bytes(_guarded(lambda: self._context.unwrap(token)).message)


def _guarded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except library().exceptions.GSSError as error:
        raise AuthenticationFailed(f"Kerberos: {cause_of(error)}") from None


def cause_of(error: Any) -> str:
    """Return the text of an error of the package, with a remedy where the error has one.

    It may contain names of an unauthenticated peer's token, so it is one line of limited length.
    """
    texts = [text for text in error.get_all_statuses(error.min_code, False) if text not in _MEANINGLESS]
    text = _printable("; ".join(texts or error.get_all_statuses(error.maj_code, True)))[:_MAX_CAUSE_CHARS]
    remedy = _REMEDIES.get(error.min_code - _FIRST_CODE)
    return text if remedy is None else f"{text}; {remedy}"


def _printable(text: str) -> str:
    """Return the text with escapes for characters that would break or forge a line of a log."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def default_realm() -> str:
    """Return the realm of principals without one; empty if none is set."""
    package = library()
    name = package.Name("any", package.NameType.kerberos_principal)
    try:
        return str(name.canonicalize(package.MechType.kerberos)).partition("@")[2]
    except package.exceptions.GSSError:
        return ""


def acceptor(login: KerberosLogin) -> NewContext:
    """Return the maker of contexts of a server. Raises AuthenticationFailed unless the keytab has its key.

    The keytab is read at each exchange, so a key that is added to it has an effect at once.
    """
    credentials = _credentials(login, "accept", {"keytab": login.keytab})
    return lambda: _Context(creds=credentials, usage="accept")


def initiator(login: KerberosLogin, service: str, host: str) -> NewContext:
    """Return the maker of contexts of a client of a service on a host. Raises AuthenticationFailed if a keytab has not
    the key of the client."""
    package = library()
    if login.keytab:
        _credentials(login, "accept", {"keytab": login.keytab})  # the one usage whose error names the file and the key
        store = {"client_keytab": login.keytab, "ccache": f"MEMORY:gregor {login.keytab} {login.principal}"}
    else:
        store = {"ccache": login.ticket_cache} if login.ticket_cache else {}
    flags = package.RequirementFlag

    def new_context() -> _Context:
        credentials = _credentials(login, "initiate", store)
        target = package.Name(f"{service}@{host}", package.NameType.hostbased_service)
        return _Context(
            name=target,
            creds=credentials,
            usage="initiate",
            mech=package.MechType.kerberos,
            flags=flags.mutual_authentication | flags.integrity,
        )

    return new_context


def _credentials(login: KerberosLogin, usage: str, store: dict[str, str]) -> Any:
    package = library()
    name = None
    if login.principal not in ("", ANY_PRINCIPAL):
        name = package.Name(login.principal, package.NameType.kerberos_principal)
    return _guarded(
        lambda: package.Credentials(name=name, usage=usage, mechs=[package.MechType.kerberos], store=store or None)
    )
