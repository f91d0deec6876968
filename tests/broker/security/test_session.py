"""broker.security.session: states, delays and ends of an authentication, with the timers of a fake loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.security import strangers
from gregor.broker.security.listener import SaslListener
from gregor.broker.security.session import EXCHANGE_LIMIT_S, SaslSession, SecuredConnection, State
from gregor.broker.security.strangers import Strangers
from gregor.config.definitions import ConfigError
from gregor.config.security.jaas import KerberosLogin, parse_jaas
from gregor.config.security.principal_rules import KerberosRules
from gregor.config.security.sasl import KerberosSettings, SaslSettings
from gregor.protocol.deferred import Deferred
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from gregor.protocol.principal import Principal
from gregor.protocol.sasl.mechanism import GSSAPI, SCRAM_SHA_256
from gregor.protocol.sasl.scram import MECHANISMS, Invented, Known, ScramClient, new_credential
from tests.support.fake_gssapi import fake_gssapi

NOW_MS = 1_000_000
SCRAM = MECHANISMS[SCRAM_SHA_256]
BOB = Known(new_credential(SCRAM, "b"), "bob")
TOKEN = Known(new_credential(SCRAM, "hmac"), "alice", NOW_MS + 5000)


class FakeLoop:
    def __init__(self) -> None:
        self.timers: list[Any] = []

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> Any:
        timer = SimpleNamespace(delay_s=delay_s, run=lambda: callback(*arguments), cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    @property
    def pending(self) -> list[Any]:
        return [one for one in self.timers if not one.cancelled]


class FakeConnection:
    peer, host, listener = "1.2.3.4:5", "1.2.3.4", "OUTSIDE"

    def __init__(self) -> None:
        self.events: list[Any] = []

    def restrict(self, max_request_bytes: int) -> None:
        self.events.append("restrict")

    def admit(self, principal: Principal) -> None:
        self.events.append(str(principal))

    def expect_tokens(self, max_token_bytes: int) -> None:
        self.events.append("tokens")

    def send_token(self, token: bytes) -> None:
        self.events.append(token)

    def hold(self) -> None:
        self.events.append("hold")

    def end_hold(self) -> None:
        self.events.append("end hold")

    def finish(self) -> None:
        self.events.append("finish")

    def fail(self, reason: str) -> None:
        self.events.append(reason)


class Credentials:
    def find(self, mechanism: str, name: str, is_token: bool) -> Known | None:
        return {("bob", False): BOB, ("id", True): TOKEN}.get((name, is_token))


class Subject:
    def __init__(
        self,
        reauth_ms: int = 0,
        settings: SaslSettings | None = None,
        others: Strangers[SecuredConnection] | None = None,
    ) -> None:
        jaas = {"PLAIN": parse_jaas('x.PlainLoginModule required user_alice="a" user_eve="e";')[0]}
        names = ("PLAIN", SCRAM_SHA_256)
        settings = settings or SaslSettings(names, jaas, dict.fromkeys(names, reauth_ms), 100, 1000)
        self.loop, self.connection = FakeLoop(), FakeConnection()
        listener = SaslListener(settings, Credentials(), Invented(), None)
        others = Strangers("authentications") if others is None else others
        self.session = SaslSession(self.connection, listener, self.loop, lambda: NOW_MS, others)  # type: ignore[arg-type]

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return self.session.handshake(SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, token: bytes = b"\0alice\0a") -> Any:
        return self.session.authenticate(SaslAuthenticateRequest(auth_bytes=token), 2)

    def log_in(self) -> Any:
        self.handshake()
        return self.authenticate()

    def refused(self, answer: Any) -> Any:
        """Return the response of a refusal, which comes after the delay, before the end of the connection."""
        assert isinstance(answer, Deferred)
        (timer,) = self.loop.pending
        assert (timer.delay_s, answer.done) == (0.1, False)
        assert "finish" not in self.connection.events
        timer.run()
        assert self.connection.events[-1] == "finish"
        return answer.value


def test_plain() -> None:
    one = Subject()
    assert one.connection.events == ["restrict"]
    assert one.handshake().error_code == 0
    answer = one.authenticate()
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert one.connection.events == ["restrict", "User:alice"]
    assert one.session.state is State.AUTHENTICATED
    assert one.loop.pending == []


def test_scram_needs_two_rounds() -> None:
    one, client = Subject(), ScramClient(SCRAM, "bob", "b")
    one.handshake(SCRAM_SHA_256)
    token: bytes | None = client.first()
    while token is not None:
        token = client.respond(one.authenticate(token).auth_bytes)
    assert one.connection.events[-1] == "User:bob"


def test_token_ends_the_session_at_its_own_end() -> None:
    one, client = Subject(reauth_ms=9000), ScramClient(SCRAM, "id", "hmac", is_token=True)
    one.handshake(SCRAM_SHA_256)
    answer = one.authenticate(client.first())
    token = client.respond(answer.auth_bytes)
    assert token is not None
    assert one.authenticate(token).session_lifetime_ms == 5000
    assert one.session.token_authenticated
    assert one.connection.events[-1] == "User:alice"


def test_wrong_password_is_answered_late_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    one = Subject()
    one.handshake()
    with caplog.at_level(logging.INFO, "gregor.authorizer"):
        answer = one.refused(one.authenticate(b"\0alice\0s3cret"))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert "authentication of 1.2.3.4:5 failed on OUTSIDE (SASL/PLAIN): the user 'alice'" in caplog.text
    assert "s3cret" not in caplog.text
    assert one.handshake().done is False  # a failed session serves nothing any more


def test_malformed_token_has_the_general_text() -> None:
    one = Subject()
    one.handshake()
    answer = one.refused(one.authenticate(b""))
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
    )


def test_unknown_mechanism_is_answered_with_the_enabled_ones() -> None:
    one = Subject()
    answer = one.refused(one.handshake("GSSAPI"))
    assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN", SCRAM_SHA_256])


def test_second_handshake_in_an_exchange_is_refused() -> None:
    one = Subject()
    one.handshake()
    assert one.refused(one.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_token_without_a_handshake_ends_the_connection() -> None:
    one = Subject()
    assert one.authenticate() is None
    assert "without a SaslHandshake" in one.connection.events[-1]


def test_client_that_does_not_authenticate_in_time_is_disconnected() -> None:
    one = Subject()
    (timer,) = one.loop.pending
    assert timer.delay_s == EXCHANGE_LIMIT_S
    timer.run()
    assert one.connection.events[-1] == "the client has not authenticated within 30 s"


def test_of_too_many_clients_that_have_not_authenticated_the_oldest_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that have, have left or authenticate again are not counted."""
    monkeypatch.setattr(strangers, "MAX_STRANGERS", 3)
    others: Strangers[SecuredConnection] = Strangers("authentications")
    known, renewing, left, stopped, refused = (Subject(reauth_ms=3000, others=others) for _ in range(5))
    # They are two more than the limit, and none of them has authenticated.
    assert [one.connection.events[1:] for one in (known, renewing)] == [
        ["3 other authentications are unfinished, and it is the oldest of 4 from 1.2.3.4: no address has more"]
    ] * 2
    assert others.present == [one.connection for one in (left, stopped, refused)]
    left.session.close()
    assert others.present == [stopped.connection, refused.connection]
    known, renewing = Subject(others=others), Subject(reauth_ms=3000, others=others)
    known.log_in()
    assert others.present == [refused.connection, renewing.connection], "the stopped one ended"
    renewing.log_in()
    renewing.handshake()
    refused.handshake()
    refused.authenticate(b"\0alice\0x")
    assert others.present == [refused.connection], "until its connection ends it costs memory"
    newer = [Subject(others=others) for _ in range(3)]
    assert refused.connection.events[-1].startswith("3 other authentications are unfinished")
    assert others.present == [one.connection for one in newer]
    for one in (known, renewing):
        assert not any("unfinished" in event for event in one.connection.events)


def test_authenticated_client_without_an_end_has_no_second_exchange() -> None:
    one = Subject()
    one.log_in()
    assert one.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert one.authenticate().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert one.connection.events == ["restrict", "User:alice"]


def test_re_authentication_before_the_end() -> None:
    one = Subject(reauth_ms=3000)
    assert one.log_in().session_lifetime_ms == 3000
    assert one.log_in().session_lifetime_ms == 3000
    assert one.connection.events == ["restrict", "User:alice", "restrict", "User:alice"]
    assert [timer.delay_s for timer in one.loop.pending] == [3.0]


def test_session_that_has_expired_serves_a_new_exchange_only() -> None:
    one = Subject(reauth_ms=3000)
    one.log_in()
    (timer,) = one.loop.pending
    timer.run()
    assert one.session.state is State.EXPIRED
    assert one.connection.events[-1] == "restrict"
    one.log_in()
    assert one.session.state is State.AUTHENTICATED


def test_re_authentication_may_change_neither_principal_nor_mechanism() -> None:
    one = Subject(reauth_ms=3000)
    one.log_in()
    one.handshake()
    answer = one.refused(one.authenticate(b"\0eve\0e"))
    assert answer.error_message == "Cannot change principals during re-authentication"
    one = Subject(reauth_ms=3000)
    one.log_in()
    assert one.refused(one.handshake(SCRAM_SHA_256)).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_raw_tokens_after_version_0() -> None:
    one = Subject()
    assert one.handshake(version=0).error_code == 0
    one.session.token(b"\0alice\0a")
    assert one.connection.events == ["restrict", "tokens", "User:alice", b""]


def test_raw_token_that_is_refused_just_ends_the_connection() -> None:
    one = Subject()
    one.handshake(version=0)
    one.session.token(b"\0alice\0x")
    assert one.connection.events[-1] == "hold"
    (timer,) = one.loop.pending
    timer.run()
    assert one.connection.events[-1] == "finish"
    one.session.close()
    assert one.connection.events[-1] == "end hold"


# ---- GSSAPI ----------------------------------------------------------------------------------------------------------

LAST = b"wrapped:\1\0\0\0"


def kerberos(keytab: str = "kafka/h@REALM") -> SaslSettings:
    login = KerberosLogin("kafka/h@REALM", keytab)
    settings = KerberosSettings(login, KerberosRules(["RULE:[1:$1](alice|bob)"]), "the key")
    return SaslSettings((GSSAPI,), {}, {GSSAPI: 9000}, 100, 1000, kerberos=settings)


@pytest.fixture
def of_kerberos() -> Iterator[Subject]:
    with fake_gssapi():
        yield Subject(settings=kerberos())


def authenticated(one: Subject, client: bytes) -> Any:
    one.handshake(GSSAPI)
    assert one.authenticate(client + b" to kafka@h").auth_bytes == b"welcome"
    assert one.authenticate(b"").auth_bytes == LAST
    return one.authenticate(LAST)


def test_gssapi_session_has_the_short_name_and_can_be_renewed(of_kerberos: Subject) -> None:
    answer = authenticated(of_kerberos, b"alice@REALM")
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 9000)
    assert of_kerberos.connection.events[-1] == "User:alice"
    assert authenticated(of_kerberos, b"alice@REALM").session_lifetime_ms == 9000


def test_gssapi_session_cannot_be_renewed_as_another(of_kerberos: Subject) -> None:
    authenticated(of_kerberos, b"alice@REALM")
    answer = of_kerberos.refused(authenticated(of_kerberos, b"bob@REALM"))
    assert answer.error_message == "Cannot change principals during re-authentication"


def test_raw_tokens_of_gssapi_end_with_that_of_the_client(of_kerberos: Subject) -> None:
    of_kerberos.handshake(GSSAPI, version=0)
    for token in (b"alice@REALM to kafka@h", b"", LAST):
        of_kerberos.session.token(token)
    assert of_kerberos.connection.events == ["restrict", "tokens", b"welcome", LAST, "User:alice"]


@pytest.mark.parametrize("client", [b"eve@REALM", b"junk"])
def test_gssapi_client_without_a_name_or_a_ticket(
    of_kerberos: Subject, client: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "gregor.authorizer"):
        if client == b"junk":
            of_kerberos.handshake(GSSAPI)
            refusal = of_kerberos.authenticate(client)
        else:
            refusal = authenticated(of_kerberos, client)
        answer = of_kerberos.refused(refusal)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
    )
    reason = "Kerberos: Invalid token" if client == b"junk" else "no rule of sasl.kerberos.principal.to.local.rules="
    assert reason in caplog.text


def test_gssapi_exchange_that_stops_in_the_middle_is_given_up(of_kerberos: Subject) -> None:
    of_kerberos.handshake(GSSAPI)
    of_kerberos.authenticate(b"alice@REALM to kafka@h")
    (timer,) = of_kerberos.loop.pending
    assert timer.delay_s == EXCHANGE_LIMIT_S
    timer.run()
    assert of_kerberos.connection.events[-1] == "the client has not authenticated within 30 s"


def test_listener_of_gssapi_without_the_package_or_its_key() -> None:
    with (
        fake_gssapi(present=False),
        pytest.raises(ConfigError, match="GSSAPI: .*pip install 'gregor.kerberos.'") as failed,
    ):
        Subject(settings=kerberos())
    assert failed.value.key == "sasl.enabled.mechanisms"
    with fake_gssapi(), pytest.raises(ConfigError, match="no client could authenticate with GSSAPI: ") as failed:
        Subject(settings=kerberos("another key"))
    assert failed.value.key == "the key"
