"""protocol.sasl.token_endpoint: tokens that are fetched, kept, refreshed, and not there."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from gregor.config.definitions import ConfigError
from gregor.config.security.jaas import parse_jaas
from gregor.protocol.client_security import security_of_client
from gregor.protocol.sasl.client_credentials import ClientCredentials, TokenNotFetched
from gregor.protocol.sasl.clients import client_mechanism
from gregor.protocol.sasl.mechanism import AuthenticationFailed
from gregor.protocol.sasl.token_endpoint import ProviderTokens, fetch_token, tokens_of
from tests.support.certificates import Authority
from tests.support.identity_provider import identity_provider, token_body
from tests.support.ports import free_port

SECRET = "planted-client-secret"
OPTIONS = {"clientId": "anna", "clientSecret": SECRET}
URL = "sasl.oauthbearer.token.endpoint.url"
JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def settings_of(url: str, options: dict[str, str] | None = None, **texts: str) -> ClientCredentials:
    given = {key.replace("_", "."): text for key, text in texts.items()}
    return ClientCredentials.of({URL: url, **given}, OPTIONS | (options or {}))


class Fetched:
    """The answers of a provider, a clock that is set by hand, and the pauses of the client."""

    def __init__(self, *answers: tuple[str, float] | TokenNotFetched, **texts: str) -> None:
        self.now_s, self.pauses_s = 0.0, list[float]()
        self._answers = list(answers)
        self.token = ProviderTokens(
            settings_of("https://a/b", **texts), self._fetch, lambda: self.now_s, self.pauses_s.append, lambda: 0.0
        )

    def _fetch(self, settings: ClientCredentials, now_s: float) -> tuple[str, float]:
        answer = self._answers.pop(0)
        if isinstance(answer, TokenNotFetched):
            raise answer
        return answer


def test_token_is_kept_until_its_refresh_time() -> None:
    fetched = Fetched(("first", 10_000.0), ("second", 20_000.0))
    assert fetched.token() == "first"
    fetched.now_s = 7999.0
    assert fetched.token() == "first"
    fetched.now_s = 8000.0
    assert fetched.token() == "second"


def test_refresh_that_fails_leaves_the_token_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    fetched = Fetched(
        ("first", 10_000.0), TokenNotFetched("down", retriable=True), TokenNotFetched("refused"), ("second", 2e4)
    )
    assert fetched.token() == "first"
    fetched.now_s = 9000.0
    with caplog.at_level(logging.WARNING):
        assert fetched.token() == "first"
    assert "for the client anna: down; the present one is used, which ends in 1000 s" in caplog.text
    assert SECRET not in caplog.text and "first" not in caplog.text and fetched.pauses_s == []
    fetched.now_s = 10_000.0
    with pytest.raises(AuthenticationFailed, match="fetched from https://a/b for the client anna: refused"):
        fetched.token()
    assert fetched.token() == "second"


def test_first_token_is_requested_again_with_growing_pauses() -> None:
    down = TokenNotFetched("down", retriable=True)
    fetched = Fetched(down, down, down, ("first", 10.0), sasl_login_retry_backoff_ms="100")
    assert fetched.token() == "first"
    assert fetched.pauses_s == [0.1, 0.2, 0.4]
    fetched = Fetched(*[down] * 9, sasl_login_retry_backoff_ms="100", sasl_login_retry_backoff_max_ms="500")
    with pytest.raises(AuthenticationFailed, match="down"):
        fetched.token()
    assert fetched.pauses_s == [0.1, 0.2, 0.2]


def test_token_comes_from_the_provider_by_http() -> None:
    with identity_provider(lambda: (200, token_body("opaque", expires_in=100))) as provider:
        assert fetch_token(settings_of(provider.url), 5.0) == ("opaque", 105.0)
    (request,) = provider.requests
    assert request.path == "/token?tenant=a"
    assert request.body == "grant_type=client_credentials"
    assert request.headers["Authorization"].startswith("Basic ")


def test_provider_of_https_must_be_trusted(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "server.pem").write_text(authority.issue("server", ("localhost",)).pem)
    (tmp_path / "ca.pem").write_text(authority.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with identity_provider(lambda: (200, token_body("opaque", expires_in=100)), context) as provider:
        with pytest.raises(TokenNotFetched, match="certificate verify failed"):
            fetch_token(settings_of(provider.url), 5.0)
        assert provider.requests == []
        store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
        assert fetch_token(settings_of(provider.url, store), 5.0) == ("opaque", 105.0)


def test_failures_name_the_cause() -> None:
    with pytest.raises(TokenNotFetched, match="refused") as failed:
        fetch_token(settings_of(f"http://127.0.0.1:{free_port()}/"), 5.0)
    assert failed.value.retriable
    with identity_provider(lambda: (200, b"x" * 1024 * 1024 + b"x")) as provider:
        with pytest.raises(TokenNotFetched, match="more than 1048576 bytes"):
            fetch_token(settings_of(provider.url), 5.0)
        provider.answer = lambda: (401, b'{"error":"invalid_client"}')
        with pytest.raises(TokenNotFetched, match=r"status 401 \(invalid_client\)"):
            fetch_token(settings_of(provider.url), 5.0)


def test_token_of_a_file(tmp_path: Path) -> None:
    claims = "eyJleHAiOjEwMH0"  # {"exp":100}
    (tmp_path / "a token").write_text(f"e30.{claims}.c2ln\n")
    settings = ClientCredentials.of({URL: (tmp_path / "a token").as_uri()}, {})
    assert fetch_token(settings, 5.0) == (f"e30.{claims}.c2ln", 100.0)
    with pytest.raises(TokenNotFetched, match="No such file"):
        fetch_token(ClientCredentials.of({URL: (tmp_path / "absent").as_uri()}, {}), 5.0)


@pytest.mark.parametrize("handler", ["", "secured."])
def test_connections_of_a_client_share_a_token(handler: str) -> None:
    tokens_of.cache_clear()
    texts: dict[str, Any] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": (
            f"org.apache.kafka.common.security.oauthbearer.{handler}OAuthBearerLoginCallbackHandler"
        ),
        "sasl.jaas.config": f'{JAAS} required clientId="anna" clientSecret="{SECRET}";',
    }
    with identity_provider(lambda: (200, token_body("opaque", expires_in=10_000))) as provider:
        security = security_of_client({**texts, URL: provider.url})
        assert provider.requests == []
        assert security.new_mechanism is not None
        for _ in range(2):
            assert security.new_mechanism("localhost").first() == b"n,,\x01auth=Bearer opaque\x01\x01"
    assert len(provider.requests) == 1


def test_settings_that_cannot_be_used_are_refused_at_once() -> None:
    texts = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", URL: "https://a/b"}
    with pytest.raises(ConfigError, match=r"client\.id=: is not set, nor is the option clientId"):
        security_of_client(texts)
    with pytest.raises(ConfigError, match="gregor loads no classes of Java"):
        security_of_client(
            {**texts, "sasl.login.callback.handler.class": "org.example.OAuthBearerLoginCallbackHandler"}
        )
    options = f'{JAAS} required clientId=a clientSecret=b ssl.truststore.location="/no/such";'
    with pytest.raises(AuthenticationFailed, match=r"ssl\.truststore\.location=/no/such"):
        client_mechanism("OAUTHBEARER", parse_jaas(options)[0], texts)
