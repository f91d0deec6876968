"""protocol.sasl.gssapi: the exchange of RFC 4752, with a security context that needs no Kerberos."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gregor.protocol.sasl.gssapi import GssapiClient, GssapiServer
from gregor.protocol.sasl.mechanism import AuthenticationFailed

PEER = "alice@REALM"


class FakeContext:
    """One side of a context: `tokens` has the answer to each token of the other side, and `last` establishes it.

    Wrapped messages have a prefix; others are refused as a broken proof of integrity is.
    """

    peer = PEER

    def __init__(self, tokens: dict[bytes | None, bytes], last: bytes | None) -> None:
        self.established = False
        self._tokens = tokens
        self._last = last

    def step(self, token: bytes | None) -> bytes:
        if token not in self._tokens:
            raise AuthenticationFailed("Kerberos: Invalid token was supplied")
        self.established = token == self._last
        return self._tokens[token]

    def wrap(self, message: bytes) -> bytes:
        assert self.established
        return b"wrapped:" + message

    def unwrap(self, token: bytes) -> bytes:
        assert self.established
        if not token.startswith(b"wrapped:"):
            raise AuthenticationFailed("Kerberos: A token had an invalid Message Integrity Check (MIC)")
        return token[len(b"wrapped:") :]


def client(answers: bool = True) -> GssapiClient:
    if not answers:
        return GssapiClient(lambda: FakeContext({None: b"hello"}, None))
    return GssapiClient(lambda: FakeContext({None: b"hello", b"welcome": b""}, b"welcome"))


def server(
    name_of: Callable[[str], str] = lambda name: name.partition("@")[0], answer: bytes = b"welcome"
) -> GssapiServer:
    return GssapiServer(lambda: FakeContext({b"hello": answer}, b"hello"), name_of)


def exchanged(one: GssapiClient, other: GssapiServer) -> list[bytes | None]:
    """Let both sides speak to the end; return all tokens in turns."""
    tokens: list[bytes | None] = [one.first()]
    while tokens[-1] is not None:
        answer = other.respond(tokens[-1])
        tokens += [answer, one.respond(answer or b"")]
    return tokens


def test_whole_exchange() -> None:
    other = server()
    tokens = exchanged(client(), other)
    assert tokens == [b"hello", b"welcome", b"", b"wrapped:\1\0\0\0", b"wrapped:\1\0\0\0", None, None]
    assert (other.done, other.principal_name, other.expires_at_ms) == (True, "alice", None)


def test_client_that_does_not_verify_the_server() -> None:
    other = server(answer=b"")
    assert exchanged(client(answers=False), other)[1] == b"wrapped:\1\0\0\0"
    assert other.done


def test_contexts_of_several_rounds() -> None:
    one = GssapiClient(lambda: FakeContext({None: b"a", b"b": b"c", b"d": b""}, b"d"))
    other = GssapiServer(lambda: FakeContext({b"a": b"b", b"c": b"d"}, b"c"), lambda name: name)
    assert exchanged(one, other)[:5] == [b"a", b"b", b"c", b"d", b""]
    assert other.principal_name == PEER


def test_client_authenticates_again_with_a_new_context() -> None:
    one = client()
    for _ in range(2):
        other = server()
        exchanged(one, other)
        assert other.done


def established(tokens: int = 2) -> GssapiServer:
    other = server()
    for token in (b"hello", b"")[:tokens]:
        other.respond(token)
    return other


@pytest.mark.parametrize(
    ("tokens", "token", "reason"),
    [
        (0, b"", "an empty token of GSSAPI instead of its ticket"),
        (0, b"junk", "Invalid token"),
        (0, b"hell", "Invalid token"),
        (0, b"x" * 100_000, "Invalid token"),
        (1, b"more", "after the context was established"),
        (2, b"", "Integrity Check"),
        (2, b"\1\0\0\0", "Integrity Check"),
        (2, b"wrapped:", "by 0 bytes of at least 4"),
        (2, b"wrapped:\1\0\0", "by 3 bytes of at least 4"),
        (2, b"wrapped:\2\0\0\0", "the security layer 2, which is not offered"),
        (2, b"wrapped:\3\0\0\0", "the security layer 3, which is not offered"),
        (2, b"wrapped:\0\0\0\0", "the security layer 0, which is not offered"),
    ],
)
def test_tokens_that_end_the_exchange(tokens: int, token: bytes, reason: str) -> None:
    other = established(tokens)
    with pytest.raises(AuthenticationFailed, match=reason) as failed:
        other.respond(token)
    assert failed.value.for_peer is None
    assert not other.done


@pytest.mark.parametrize("choice", [b"\1\0\0\0", b"\1\0\0\0bob@REALM", b"\1\0\1\0\0\xff"])
def test_client_is_the_one_of_its_ticket(choice: bytes) -> None:
    """Java sends its own principal as the authorization id, Cyrus SASL the name of a user, gregor nothing."""
    other = established()
    assert other.respond(b"wrapped:" + choice) is None
    assert (other.done, other.principal_name) == (True, "alice")


def test_nothing_follows_the_end() -> None:
    other = established()
    other.respond(b"wrapped:\1\0\0\0")
    with pytest.raises(AuthenticationFailed, match="after the end"):
        other.respond(b"")


def test_principal_without_a_name_is_refused() -> None:
    def name_of(principal: str) -> str:
        raise AuthenticationFailed(f"no rule fits {principal}")

    other = server(name_of)
    with pytest.raises(AuthenticationFailed, match="no rule fits alice@REALM"):
        exchanged(client(), other)
    assert not other.done


def test_context_that_comes_to_no_end_is_refused() -> None:
    other = GssapiServer(lambda: FakeContext({b"hello": b""}, None), lambda name: name)
    with pytest.raises(AuthenticationFailed, match="no token to send"):
        other.respond(b"hello")


@pytest.mark.parametrize(
    ("offer", "reason"),
    [
        (b"\1\0\0\0", "Integrity Check"),
        (b"wrapped:\6\0\1\0", "offers no GSSAPI without a security layer"),
        (b"wrapped:\1", "offers no GSSAPI without a security layer"),
    ],
)
def test_client_refuses_what_it_cannot_choose(offer: bytes, reason: str) -> None:
    one = client()
    one.first()
    assert one.respond(b"welcome") == b""
    with pytest.raises(AuthenticationFailed, match=reason):
        one.respond(offer)


def test_client_chooses_no_layer_among_several() -> None:
    one = client()
    one.first()
    one.respond(b"welcome")
    assert one.respond(b"wrapped:\7\0\1\0") == b"wrapped:\1\0\0\0"
    with pytest.raises(AuthenticationFailed, match="after the end"):
        one.respond(b"more")


def test_client_refuses_a_server_that_it_cannot_verify() -> None:
    one = client()
    one.first()
    with pytest.raises(AuthenticationFailed, match="Invalid token"):
        one.respond(b"forged")
