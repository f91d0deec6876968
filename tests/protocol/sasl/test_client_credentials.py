"""protocol.sasl.client_credentials: settings, requests, responses and lifetimes of tokens of an identity provider."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from gregor.config.definitions import ConfigError
from gregor.protocol.sasl.client_credentials import (
    ClientCredentials,
    RefreshTimes,
    TokenNotFetched,
    checked_token,
    token_of_response,
)

NOW_S = 1_700_000_000.0
SECRET = "a secret:+é"
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
OPTIONS = {"clientId": "anna", "clientSecret": SECRET, "scope": "read write"}


def web_token(**claims: Any) -> str:
    parts = ({"alg": "none"}, claims)
    texts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join(texts) + ".c2ln"


def test_request_has_the_options_of_the_login_module() -> None:
    headers, body = ClientCredentials.of(ENDPOINT, OPTIONS).request()
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == f"anna:{SECRET}"
    assert body == b"grant_type=client_credentials&scope=read+write"


def test_settings_precede_the_options_of_the_login_module() -> None:
    texts = ENDPOINT | {
        "sasl.oauthbearer.client.credentials.client.id": "a&b",
        "sasl.oauthbearer.client.credentials.client.secret": "c d",
        "sasl.oauthbearer.scope": "other",
        "sasl.oauthbearer.header.urlencode": "true",
        "sasl.login.connect.timeout.ms": "5",
    }
    settings = ClientCredentials.of(texts, OPTIONS)
    headers, body = settings.request()
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"a%26b:c+d"
    assert body == b"grant_type=client_credentials&scope=other"
    assert (settings.connect_timeout_ms, settings.read_timeout_ms) == (5, 10_000)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ({}, {"clientSecret": "x"}, "client.id=: is not set, nor is the option clientId"),
        ({}, {"clientId": "x"}, "client.secret=: is not set, nor is the option clientSecret"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://a/b"}, OPTIONS, "must be a URL that begins with https://"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://u:pw@a/b"}, OPTIONS, r"\(hidden\): .* without a user in it"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://a:x/b"}, OPTIONS, "must be a URL"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://a/b c"}, OPTIONS, "must be a URL"),
        ({"sasl.login.refresh.window.factor": "2"}, OPTIONS, "must be a number from 0.5 to 1.0"),
        ({"sasl.login.connect.timeout.ms": "nan"}, OPTIONS, "must be a number from 1 "),
        ({"sasl.oauthbearer.header.urlencode": "yes"}, OPTIONS, "must be true or false"),
    ],
)
def test_settings_that_cannot_be_used(texts: dict[str, str], options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        ClientCredentials.of(ENDPOINT | texts, options)
    assert "pw" not in str(refused.value)


def test_secrets_are_not_in_the_repr() -> None:
    settings = ClientCredentials.of(ENDPOINT, OPTIONS | {"ssl.truststore.password": "hide-me"})
    assert dict(settings.tls_texts) == {"ssl.truststore.password": "hide-me"}
    assert SECRET not in repr(settings) and "hide-me" not in repr(settings)


def test_end_of_a_token_is_its_claim_or_the_time_beside_it() -> None:
    signed = web_token(sub="anna", exp=NOW_S + 60)
    body = json.dumps({"access_token": signed, "expires_in": 5}).encode()
    assert token_of_response(200, body, NOW_S) == (signed, NOW_S + 60)
    body = json.dumps({"access_token": " opaque ", "expires_in": 5}).encode()
    assert token_of_response(200, body, NOW_S) == ("opaque", NOW_S + 5)


@pytest.mark.parametrize(
    ("status", "body", "message", "retriable"),
    [
        (503, b"<html>", "the status 503$", True),
        (429, b"", "the status 429$", True),
        (302, b"", "the status 302$", False),
        (401, b'{"error":"invalid_client","error_description":"no"}', r"the status 401 \(invalid_client\)", False),
        (400, b'{"error":"a\\nb"}', "the status 400$", False),
        (200, b"[]", "no JSON object with an access_token", False),
        (200, b"[" * 100_000, "no JSON object with an access_token", False),
        (200, b"\xff", "no JSON object with an access_token", False),
        (200, b'{"access_token":7}', "no JSON object with an access_token", False),
        (200, b'{"access_token":"a\\u0001auth=Bearer b"}', "not a bearer token", False),
        (200, b'{"access_token":"opaque"}', "no end", False),
        (200, b'{"access_token":"opaque","expires_in":true}', "no end", False),
        (200, b'{"access_token":"opaque","expires_in":NaN}', "no end", False),
    ],
)
def test_responses_without_a_token(status: int, body: bytes, message: str, retriable: bool) -> None:
    with pytest.raises(TokenNotFetched, match=message) as failed:
        token_of_response(status, body, NOW_S)
    assert failed.value.retriable == retriable


def test_token_that_has_ended_is_refused() -> None:
    with pytest.raises(TokenNotFetched, match="ended 7 s ago; compare the clocks"):
        checked_token(web_token(exp=NOW_S - 7), NOW_S)


@pytest.mark.parametrize(
    ("lifetime_s", "times", "due_s"),
    [
        (1000.0, RefreshTimes(), 700.0),  # 800, but not within the last 300
        (10_000.0, RefreshTimes(), 8000.0),
        (100.0, RefreshTimes(), 80.0),  # too short for the minimum and the buffer
        (10_000.0, RefreshTimes(window_factor=0.5, min_period_s=9000, buffer_s=0), 9000.0),
    ],
)
def test_refresh_time(lifetime_s: float, times: RefreshTimes, due_s: float) -> None:
    assert times.due_s(0.0, lifetime_s, 0.0) == due_s


def test_jitter_delays_the_refresh() -> None:
    assert RefreshTimes().due_s(0.0, 10_000.0, 1.0) == pytest.approx(8500.0)
