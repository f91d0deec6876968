"""protocol.sasl.kerberos: the use of the package `gssapi`, in whose place there is a small one. The real one, with a
KDC, is in tests/compat/test_kerberos.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gregor.config.security.jaas import KerberosLogin, parse_jaas
from gregor.protocol.sasl.clients import client_mechanism
from gregor.protocol.sasl.gssapi import GssapiServer
from gregor.protocol.sasl.kerberos import KerberosMissing, acceptor, cause_of, default_realm, initiator
from gregor.protocol.sasl.mechanism import AuthenticationFailed
from tests.support.fake_gssapi import GSSError, fake_gssapi

BROKER = KerberosLogin("kafka/host@REALM", "kafka/host@REALM")
SERVICE = {"sasl.kerberos.service.name": "kafka"}


@pytest.fixture
def package() -> Iterator[None]:
    with fake_gssapi():
        yield


def jaas(options: str) -> str:
    return f"com.sun.security.auth.module.Krb5LoginModule required {options};"


@pytest.mark.usefixtures("package")
def test_client_and_server() -> None:
    entry = parse_jaas(jaas('useKeyTab=true keyTab="alice@REALM" principal="alice@REALM"'))[0]
    client = client_mechanism("GSSAPI", entry, SERVICE, host="host")
    server = GssapiServer(acceptor(BROKER), lambda name: name.partition("@")[0])
    token: bytes | None = client.first()
    assert token == b"alice@REALM to kafka@host"
    while token is not None:
        token = client.respond(server.respond(token) or b"")
    assert (server.done, server.principal_name) == (True, "alice")


@pytest.mark.usefixtures("package")
def test_name_that_is_no_text_is_no_error_of_the_program() -> None:
    server = GssapiServer(acceptor(BROKER), lambda name: name)
    for token in (b"b\xf6b@REALM to kafka@host", b"", b"wrapped:\1\0\0\0"):
        server.respond(token)
    assert server.principal_name == "b\\xf6b@REALM"


def test_names_of_a_peer_forge_no_line_of_a_log() -> None:
    class ForgedError(GSSError):
        def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
            return ["Cannot decrypt ticket for kafka\n2026-01-01 alice is authenticated" + 1000 * "x"]

    text = cause_of(ForgedError(9, 31))
    assert text.startswith("Cannot decrypt ticket for kafka\\n2026-01-01 alice") and text.isprintable()
    assert len(text) == 300


@pytest.mark.usefixtures("package")
def test_failures_name_the_cause() -> None:
    server = GssapiServer(acceptor(BROKER), str)
    with pytest.raises(AuthenticationFailed, match="^Kerberos: Invalid token was supplied$"):
        server.respond(b"junk")
    with pytest.raises(
        AuthenticationFailed, match="^Kerberos: No credentials cache found; run kinit, or set useKeyTab"
    ):
        acceptor(KerberosLogin("kafka/host@REALM", "another"))
    with pytest.raises(AuthenticationFailed, match="run kinit"):
        initiator(KerberosLogin("alice@REALM", "another"), "kafka", "host")


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("options", "settings", "store"),
    [
        (None, SERVICE, None),
        ("useTicketCache=true", SERVICE, None),
        ("useTicketCache=true ticketCache='FILE:/tmp/x' serviceName=kafka", {}, {"ccache": "/tmp/x"}),
    ],
)
def test_clients_of_the_ticket_cache(
    options: str | None, settings: dict[str, str], store: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gssapi

    seen = []
    made = gssapi.Credentials
    monkeypatch.setattr(gssapi, "Credentials", lambda **given: seen.append(given["store"]) or made(**given))
    entry = None if options is None else parse_jaas(jaas(options))[0]
    assert client_mechanism("GSSAPI", entry, settings, host="h").first() == b"None to kafka@h"
    assert seen == [store]


@pytest.mark.usefixtures("package")
def test_tickets_of_a_keytab_are_in_memory_and_of_its_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    import gssapi

    seen = []
    made = gssapi.Credentials
    monkeypatch.setattr(
        gssapi, "Credentials", lambda **given: seen.append((given["usage"], given["store"])) or made(**given)
    )
    for name in ("a@R", "b@R"):
        initiator(KerberosLogin(name, "a@R b@R"), "kafka", "host")()
    assert seen[0] == ("accept", {"keytab": "a@R b@R"})
    caches = [store["ccache"] for usage, store in seen if usage == "initiate"]
    assert len(set(caches)) == 2 and all(cache.startswith("MEMORY:") for cache in caches)


@pytest.mark.usefixtures("package")
def test_default_realm() -> None:
    assert default_realm() == "REALM"


@pytest.mark.parametrize("options", [None, 'useKeyTab=true keyTab="a@R" principal="a@R"'])
def test_package_that_is_not_installed(options: str | None) -> None:
    entry = None if options is None else parse_jaas(jaas(options))[0]
    with fake_gssapi(present=False), pytest.raises(KerberosMissing) as missing:
        client_mechanism("GSSAPI", entry, SERVICE)
    assert "install it with: pip install 'gregor[kerberos]'" in str(missing.value)


@pytest.mark.parametrize(
    ("options", "settings", "reason"),
    [
        (None, {}, "sasl.kerberos.service.name=: is not set"),
        ("useTicketCache=true serviceName=a", SERVICE, "differs from the option serviceName=a"),
        ("useKeyTab=true", SERVICE, "sasl.jaas.config: Krb5LoginModule with useKeyTab=true needs the options keyTab"),
        ("principal=a", SERVICE, "or for clients useTicketCache=true"),
    ],
)
def test_settings_that_do_not_fit(options: str | None, settings: dict[str, str], reason: str) -> None:
    entry = None if options is None else parse_jaas(jaas(options))[0]
    with pytest.raises(AuthenticationFailed, match=reason):
        client_mechanism("GSSAPI", entry, settings)


def test_login_module_of_another_mechanism() -> None:
    with pytest.raises(
        AuthenticationFailed, match="names x.PlainLoginModule; GSSAPI needs com.sun.security.auth.module"
    ):
        client_mechanism("GSSAPI", parse_jaas("x.PlainLoginModule required;")[0], SERVICE)
