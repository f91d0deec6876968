"""protocol.sasl.plain: users, passwords, and messages that must fail."""

from __future__ import annotations

import pytest

from gregor.protocol.sasl.mechanism import AuthenticationFailed
from gregor.protocol.sasl.plain import PasswordTable, PlainClient, PlainServer

USERS = PasswordTable({"alice": "säcret", "bob": "b"})


def test_client_and_server_agree() -> None:
    server, client = PlainServer(USERS), PlainClient("alice", "säcret")
    client.respond(server.respond(client.first()))
    assert (server.done, server.principal_name, server.expires_at_ms) == (True, "alice", None)


def test_identity_may_be_named_if_it_is_the_user() -> None:
    server = PlainServer(USERS)
    server.respond(b"bob\0bob\0b")
    assert server.done


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0b", "Authentication failed: Invalid username or password"),
        (b"\0bob\0", None),
        (b"\0\0b", None),
        (b"", None),
        (b"bob\0b", None),
        (b"\0bob\0b\0c", None),
        (b"\0bob\0\xff", None),
        (
            b"alice\0bob\0b",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_refusals(token: bytes, text: str | None) -> None:
    server = PlainServer(USERS)
    with pytest.raises(AuthenticationFailed) as failed:
        server.respond(token)
    assert failed.value.for_peer == text
    assert not server.done
    assert "säcret" not in str(failed.value)
