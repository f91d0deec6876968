"""The settings and rules of a secured run, and the outputs that its judgement finds."""

from __future__ import annotations

import pathlib

import pytest

from tests.cluster.security import (
    ADMIN,
    BROKER,
    CONSUMER,
    PASSWORDS,
    PLAINTEXT,
    PRODUCER,
    SASL_SSL,
    STRANGER,
    Security,
    leaked,
    refusals,
)


@pytest.mark.parametrize(
    "line",
    [
        '{"name": "producer_send_error", "exception": "TOPIC_AUTHORIZATION_FAILED", "message": ""}',
        "12:00:00,000 ERROR Sender: org.apache.kafka.common.errors.TopicAuthorizationException: [chaos]",
        "ERROR Metadata Not authorized to access topics: [chaos]",
        'KafkaError{code=_AUTHENTICATION,val=-169,str="sasl_ssl://10.77.0.11:9092/0: SASL authentication error"}',
        "ERROR NetworkClient failed authentication due to: Authentication failed during authentication",
        "SSL handshake failed: ssl.c:1: certificate verify failed: broker certificate could not be verified",
        "javax.net.ssl.SSLHandshakeException: No subject alternative names matching IP address 10.77.0.11 found",
    ],
)
def test_refusal_of_a_client_with_rights_is_found(line: str) -> None:
    (found,) = refusals({"producer": f"one\n{line}\n{line}\n", "consumer": "one\n"})
    assert found.startswith("producer was refused 2 times, first: ") and line in found


def test_lost_connections_are_no_refusals() -> None:
    lines = (
        'KafkaError{code=_TRANSPORT,str="sasl_ssl://10.77.0.11:9092/0: Disconnected (after 9 ms in state AUTH_REQ)"}',
        'KafkaError{code=_AUTHENTICATION,val=-169,str="GroupCoordinator: 10.77.0.13:9092: SASL SCRAM-SHA-512 mechanism'
        " handshake failed: Local: Broker transport failure: broker's supported mechanisms: (n/a)\"}",
        "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?",
        "WARN NetworkClient Connection to node 0 terminated during authentication. This may happen due to any of the"
        " following reasons: (1) Authentication failed due to invalid credentials with brokers older than 1.0.0",
    )
    assert refusals({"producer": "\n".join(lines)}) == []


def test_printed_password_is_found() -> None:
    assert leaked({"broker-0": f"user={PASSWORDS[STRANGER]}", "broker-1": "user=***"}) == [
        "broker-0 has printed the password of stranger"
    ]


def test_rules_name_those_who_need_them_and_no_stranger(tmp_path: pathlib.Path) -> None:
    security = Security(SASL_SSL, tmp_path, ["10.77.0.11"])
    rules = security.rules("t", ["g", "h"])
    assert {(rule.principal, rule.name) for rule in rules} == {
        (f"User:{PRODUCER}", "t"),
        *((f"User:{CONSUMER}", name) for name in ("t", "g", "h")),
    }
    assert security.broker_settings()["super.users"] == f"User:{BROKER};User:{ADMIN}"


def test_plaintext_has_no_settings(tmp_path: pathlib.Path) -> None:
    security = Security(PLAINTEXT, tmp_path, ["10.77.0.11"])
    assert [security.broker_settings(), security.librdkafka(ADMIN), security.java(ADMIN)] == [{}, {}, {}]
    assert security.rules("t", ["g"]) == [] and list(tmp_path.iterdir()) == []
