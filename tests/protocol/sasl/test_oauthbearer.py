"""protocol.sasl.oauthbearer and web_tokens: unsecured tokens as Kafka's login module makes them, and refusals."""

from __future__ import annotations

import json

import pytest

from gregor.config.security.jaas import parse_jaas
from gregor.protocol.sasl.clients import client_mechanism
from gregor.protocol.sasl.mechanism import AuthenticationFailed
from gregor.protocol.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer, TokenRefused
from gregor.protocol.sasl.web_tokens import checked_claims, json_parts, new_unsecured_token, unsecured_validator

NOW_S = 1_700_000_000


def server(**options: str) -> OAuthBearerServer:
    return OAuthBearerServer(unsecured_validator(options, lambda: NOW_S * 1000))


def token(**options: str) -> str:
    return new_unsecured_token({f"unsecuredLogin{key}": text for key, text in options.items()}, NOW_S)


def test_client_and_server_agree() -> None:
    (entry,) = parse_jaas('x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";')
    client, other = client_mechanism("OAUTHBEARER", entry, now_s=lambda: NOW_S), server()
    assert client.respond(other.respond(client.first())) is None
    assert (other.done, other.principal_name, other.expires_at_ms) == (True, "alice", (NOW_S + 3600) * 1000)


def test_refused_token_is_answered_by_json_and_then_fails() -> None:
    other = server(unsecuredValidatorRequiredScope="write")
    client = OAuthBearerClient(lambda: token(StringClaim_sub="alice", ListClaim_scope=",read"))
    answer = other.respond(client.first())
    assert json.loads(answer) == {"status": "insufficient_scope", "scope": "write"}
    last = client.respond(answer)
    assert last == b"\x01"
    with pytest.raises(AuthenticationFailed) as failed:
        other.respond(last)
    assert failed.value.for_peer == answer.decode()
    assert not other.done


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"\xff" * 100,
    ],
)
def test_malformed_messages_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server().respond(message)


def test_other_identity_than_that_of_the_token_is_refused() -> None:
    text = token(StringClaim_sub="alice")
    with pytest.raises(AuthenticationFailed, match="another identity"):
        server().respond(f"n,a=bob,\x01auth=Bearer {text}\x01\x01".encode())


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"sub": "a"}, "has no end"),
        ({"sub": "a", "exp": NOW_S - 31}, "expired"),
        ({"sub": "a", "exp": NOW_S + 9, "iat": NOW_S + 31}, "iat is 31 s in the future"),
        ({"sub": "a", "exp": NOW_S + 9, "nbf": NOW_S + 31}, "nbf is 31 s in the future"),
        ({"exp": NOW_S + 9}, "has no subject"),
        ({"sub": " ", "exp": NOW_S + 9}, "has no subject"),
        ({"sub": "a", "exp": True}, "exp is not a time"),
        ({"sub": "a", "exp": "1"}, "exp is not a time"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, object], reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason):
        checked_claims(claims, NOW_S, 30)


def test_clock_skew_is_granted() -> None:
    claims = {"sub": "a", "exp": NOW_S - 29, "iat": NOW_S + 29}
    assert checked_claims(claims, NOW_S, 30).principal_name == "a"


@pytest.mark.parametrize("text", ["", "a.b", "....", "e30.e30.!", "e30.W10.", "e30.bnVsbA.", "e30.e30." + "x" * 70_000])
def test_texts_that_are_no_tokens(text: str) -> None:
    with pytest.raises(TokenRefused):
        json_parts(text)
