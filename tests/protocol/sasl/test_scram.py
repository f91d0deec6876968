"""protocol.sasl.scram: RFC 7677's example, both sides against each other, and exchanges that must fail."""

from __future__ import annotations

import base64

import pytest

from gregor.protocol.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, AuthenticationFailed
from gregor.protocol.sasl.scram import (
    MECHANISMS,
    Invented,
    Known,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    credential_of,
    format_credential,
    new_credential,
    parse_credential,
    salted_password,
)

SALT = b"0123456789abcdef"
INVENTED = Invented(b"secret")


def credential(mechanism: ScramMechanism, password: str, iterations: int = 4096) -> ScramCredential:
    return credential_of(mechanism, SALT, salted_password(mechanism, password, SALT, iterations), iterations)


def server(mechanism: ScramMechanism, **users: str) -> ScramServer:
    known = {user: Known(credential(mechanism, password), user) for user, password in users.items()}
    return ScramServer(mechanism, lambda user, is_token: None if is_token else known.get(user), INVENTED)


def exchange(client: ScramClient, other: ScramServer) -> None:
    token: bytes | None = client.first()
    while token is not None:
        token = client.respond(other.respond(token))


def test_example_of_rfc_7677() -> None:
    client = ScramClient(MECHANISMS[SCRAM_SHA_256], "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = client.respond(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize("name", [SCRAM_SHA_256, SCRAM_SHA_512])
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C", "Jürgen Ω"])
def test_both_sides_agree(name: str, user: str) -> None:
    mechanism = MECHANISMS[name]
    other = server(mechanism, **{user: "pass,=wörd"})
    exchange(ScramClient(mechanism, user, "pass,=wörd"), other)
    assert other.done
    assert other.principal_name == user
    assert other.expires_at_ms is None
    assert not other.token_authenticated


def test_same_client_authenticates_again() -> None:
    mechanism = MECHANISMS[SCRAM_SHA_256]
    client = ScramClient(mechanism, "alice", "x")
    for _ in range(2):
        other = server(mechanism, alice="x")
        exchange(client, other)
        assert other.done


def test_token_has_the_name_of_its_owner_and_its_end() -> None:
    mechanism = MECHANISMS[SCRAM_SHA_256]
    known = Known(credential(mechanism, "hmac"), "owner", 77)
    other = ScramServer(mechanism, lambda name, is_token: known if is_token and name == "id" else None, INVENTED)
    exchange(ScramClient(mechanism, "id", "hmac", is_token=True), other)
    assert (other.principal_name, other.expires_at_ms, other.token_authenticated) == ("owner", 77, True)


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "x"), ("weak", "x")])
def test_unknown_user_and_wrong_password_look_alike(user: str, password: str) -> None:
    mechanism = MECHANISMS[SCRAM_SHA_256]
    known = {"alice": credential(mechanism, "x"), "weak": credential(mechanism, "x", 1)}
    users = {name: Known(one, name) for name, one in known.items()}
    other = ScramServer(mechanism, lambda name, is_token: users.get(name), INVENTED)
    client = ScramClient(mechanism, user, password)
    first = other.respond(client.first())
    fields = dict(part.split("=", 1) for part in first.decode().split(","))
    assert (len(base64.b64decode(fields["s"])), fields["i"]) == (16, "4096")
    final = client.respond(first)
    assert final is not None
    with pytest.raises(AuthenticationFailed) as failed:
        other.respond(final)
    assert failed.value.for_peer is None
    assert not other.done


def test_salt_of_an_unknown_user_is_always_the_same() -> None:
    mechanism = MECHANISMS[SCRAM_SHA_512]
    assert INVENTED.credential(mechanism, "a") == INVENTED.credential(mechanism, "a")
    assert INVENTED.credential(mechanism, "a").salt != INVENTED.credential(mechanism, "b").salt


def test_changed_messages_are_refused() -> None:
    mechanism = MECHANISMS[SCRAM_SHA_256]
    client = ScramClient(mechanism, "alice", "x")
    first = client.first()
    final = client.respond(server(mechanism, alice="x").respond(first))
    assert final is not None
    for message in (b"", b"\xff", b"n,,n=alice", b"y,,n=alice,r=a", b"n,,n=a=b,r=a", b"n,a=bob,n=alice,r=a"):
        with pytest.raises(AuthenticationFailed):
            server(mechanism, alice="x").respond(message)
    for change in (lambda text: text[:-1], lambda text: text.replace("c=biws", "c=eSws"), lambda text: text + "x"):
        other = server(mechanism, alice="x")
        client = ScramClient(mechanism, "alice", "x")
        final = client.respond(other.respond(client.first()))
        assert final is not None
        with pytest.raises(AuthenticationFailed):
            other.respond(change(final.decode()).encode())
        assert not other.done


def test_client_notices_a_server_that_does_not_know_the_password() -> None:
    mechanism = MECHANISMS[SCRAM_SHA_256]
    client = ScramClient(mechanism, "alice", "x")
    other = server(mechanism, alice="x")
    client.respond(other.respond(client.first()))
    with pytest.raises(AuthenticationFailed, match="does not know the password"):
        client.respond(b"v=" + base64.b64encode(bytes(32)))
    client.first()
    with pytest.raises(AuthenticationFailed, match="fewer than 4096"):
        nonce = client.first().decode().rpartition("r=")[2]
        client.respond(f"r={nonce}x,s=AAAA,i=1".encode())


def test_stored_text_is_that_of_kafka() -> None:
    one = new_credential(MECHANISMS[SCRAM_SHA_256], "x")
    text = format_credential(one)
    assert [part.partition("=")[0] for part in text.split(",")] == ["salt", "stored_key", "server_key", "iterations"]
    assert parse_credential(text) == one
    assert "salt" not in repr(one)
    for bad in ("", "salt=a", text.replace("4096", "x"), text.replace("salt=", "salt=!"), text + ",more=1"):
        with pytest.raises(ValueError, match="SCRAM credential"):
            parse_credential(bad)
