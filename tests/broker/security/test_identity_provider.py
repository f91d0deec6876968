"""Tokens that an identity provider has signed: keys, claims, forged tokens, and keys that change."""

from __future__ import annotations

import asyncio
import functools
import http.client
import json
import ssl
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="the extra gregor[security] is not installed")

from gregor.broker.security.identity_provider import IdentityProvider
from gregor.broker.security.signatures import keys_of_set
from gregor.config.security.sasl import JwksSettings
from gregor.protocol.sasl.oauthbearer import TokenRefused
from tests.support import web_tokens
from tests.support.certificates import Certificates
from tests.support.identity_provider import identity_provider
from tests.support.web_tokens import key_set, number, text_of

NOW_S = 1_700_000_000
CLAIMS = {"sub": "alice", "exp": NOW_S + 60, "iat": NOW_S, "iss": "me", "aud": ["gregor", "x"]}
LIMIT_S = 60.0
token = functools.partial(web_tokens.token, claims=CLAIMS)


class Subject:
    def __init__(self, *answers: bytes | Exception, audiences: tuple[str, ...]) -> None:
        self.answers = list(answers)
        settings = JwksSettings("https://a", 3_600_000, 1, 1, 30, frozenset(audiences), "me", "scope", "sub")
        self.provider = IdentityProvider(settings, lambda: NOW_S * 1000, self.run)

    async def run(self, read: Callable[[str], bytes], url: str) -> bytes:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def accepts(self, text: str) -> bool:
        try:
            return self.provider.validate(text).principal_name == "alice"
        except TokenRefused:
            return False


def running(
    check: Callable[[Subject], Any], *answers: bytes | Exception, audiences: tuple[str, ...] = ("gregor",)
) -> None:
    async def run() -> None:
        subject = Subject(*answers, audiences=audiences)
        following = asyncio.ensure_future(subject.provider.follow())
        try:
            await check(subject)
        finally:
            following.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256"])
def test_signed_tokens(algorithm: str) -> None:
    async def check(subject: Subject) -> None:
        await subject.until(lambda: subject.accepts(token(algorithm)))
        assert subject.provider.validate(token(algorithm)).expires_at_ms == CLAIMS["exp"] * 1000  # type: ignore[operator]

    running(check, key_set("r", "e"))


def test_tokens_that_are_refused() -> None:
    good = token("RS256")
    header, claims, signature = good.split(".")
    forged = text_of(json.dumps({**CLAIMS, "sub": "root"}).encode())
    confused = text_of(json.dumps({"alg": "HS256", "kid": "r"}).encode())
    cases = {
        f"{header}.{forged}.{signature}": "signature is wrong",
        f"{confused}.{claims}.{signature}": "signature is wrong",
        token("none", kid="r"): "signature is wrong",
        token("ES256", kid="r"): "signature is wrong",
        token("RS256", kid="unknown"): "not among those",
        token("RS256", kid=""): "not among those",
        token("RS256", claims={**CLAIMS, "iss": "you"}): "another issuer",
        token("RS256", claims={**CLAIMS, "aud": "other"}): "expected.audience",
        token("RS256", claims={**CLAIMS, "aud": None}): "expected.audience",
        token("RS256", claims={**CLAIMS, "aud": 5}): "expected.audience",
        token("RS256", claims={**CLAIMS, "aud": {"gregor": 1}}): "expected.audience",
        token("RS256", claims={**CLAIMS, "exp": NOW_S - 60}): "expired",
        token("RS256", claims={**CLAIMS, "iat": None}): "no time of issue",
    }

    async def check(subject: Subject) -> None:
        await subject.until(lambda: subject.accepts(good))
        for text, reason in cases.items():
            with pytest.raises(TokenRefused, match=reason):
                subject.provider.validate(text)

    running(check, key_set("r", "e"))


@pytest.mark.parametrize(("audience", "accepted"), [(None, True), ("gregor", False), ([], False)])
def test_a_token_for_an_audience_needs_an_expected_one(audience: object, accepted: bool) -> None:
    """As Apache Kafka's BrokerJwtValidator: without expected audiences only tokens that name none are valid."""

    async def check(subject: Subject) -> None:
        await subject.until(lambda: subject.accepts(token("RS256", claims={**CLAIMS, "aud": None})))
        assert subject.accepts(token("RS256", claims={**CLAIMS, "aud": audience})) is accepted

    running(check, key_set("r"), audiences=())


def test_keys_are_read_again_after_a_failure_and_for_an_unknown_key() -> None:
    async def check(subject: Subject) -> None:
        with pytest.raises(TokenRefused, match="not read yet"):
            subject.provider.validate(token("RS256"))
        await subject.until(lambda: subject.accepts(token("RS256")))
        assert not subject.accepts(token("ES256"))
        await subject.until(lambda: subject.accepts(token("ES256")))

    running(check, OSError("refused"), b"no json", key_set("r"), key_set("e", "r"))


@pytest.mark.parametrize(
    "answer",
    [
        http.client.IncompleteRead(b""),
        http.client.BadStatusLine("SSH-2.0-x"),
        RuntimeError("unforeseen"),
        b"[" * 100_000,
    ],
    ids=["a body that ends early", "no HTTP", "a defect", "deep JSON"],
)
def test_keys_are_read_again_after_any_answer(answer: bytes | Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def check(subject: Subject) -> None:
        await subject.until(lambda: subject.accepts(token("RS256")))
        assert "the keys of https://a cannot be read and stay as they were (0)" in caplog.text

    running(check, answer, key_set("r"))


@pytest.mark.parametrize("trusts", [True, False])
def test_keys_at_https_are_read_from_a_provider_whose_authority_is_trusted(
    trusts: bool, certificates: Certificates
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_file)
    trusted = (("ssl.truststore.location", certificates.ca_file), ("ssl.truststore.type", "PEM"))

    async def check(url: str) -> None:
        settings = JwksSettings(url, 3_600_000, 1, 1, 30, frozenset(), None, "scope", "sub", trusted if trusts else ())
        reads: asyncio.Queue[bytes | Exception] = asyncio.Queue()

        async def run(read: Callable[[str], bytes], of: str) -> bytes:
            try:
                found = await asyncio.to_thread(read, of)
            except Exception as error:
                reads.put_nowait(error)
                raise
            reads.put_nowait(found)
            return found

        following = asyncio.ensure_future(IdentityProvider(settings, lambda: NOW_S * 1000, run).follow())
        async with asyncio.timeout(LIMIT_S):
            found = await reads.get()
        following.cancel()
        if trusts:
            assert found == key_set("r")
        else:
            assert isinstance(found, OSError) and "certificate verify failed" in str(found)

    with identity_provider(lambda: (200, key_set("r")), context) as provider:
        asyncio.run(check(provider.url))


@pytest.mark.parametrize(
    "value", [None, [], {}, {"keys": 1}, {"keys": []}, {"keys": [{"kty": "RSA"}]}, {"keys": [{"kty": "RSA", "n": 1}]}]
)
def test_broken_key_sets(value: Any) -> None:
    with pytest.raises(ValueError, match=r"it "):
        keys_of_set(value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kty": "RSA", "e": "AQAB", "n": number((1 << 1023) + 1)}, "it has 1024 bits, and an RSA key needs 2048"),
        ({"kty": "RSA", "x5c": ["AA"]}, "KeyError: 'e'"),
        ({"kty": "RSA", "e": "?", "n": "AQAB"}, "is not base64url"),
        ({"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}, "ValueError"),
        ({"kty": "EC", "crv": []}, "TypeError"),
    ],
    ids=["weak", "without numbers", "no base64url", "off its curve", "of no curve"],
)
def test_a_key_that_cannot_be_used_does_not_refuse_the_others(
    fields: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = json.loads(key_set("r", "e"))["keys"]
    assert sorted(keys_of_set({"keys": [{"kid": "bad", **fields}, *good]})) == ["e", "r"]
    assert "the key number 0 (kid 'bad') of a JSON web key set cannot be used and is left out" in caplog.text
    assert reason in caplog.text
