"""gregor.spark_jobs.client.settings: options with the prefix kafka."""

from __future__ import annotations

import pickle

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.spark_jobs.client.failure import KafkaFailure
from gregor.spark_jobs.client.settings import ClientSettings
from gregor.spark_jobs.errors import JobError

SERVERS = {"kafka.bootstrap.servers": "a:1, [::1]:2"}


def test_names_and_defaults_are_those_of_the_consumer() -> None:
    settings = ClientSettings.from_options(SERVERS)
    assert settings.bootstrap_servers == (("a", 1), ("::1", 2))
    assert (settings.request_timeout_ms, settings.default_api_timeout_ms) == (30_000, 60_000)
    assert (settings.fetch_max_bytes, settings.max_partition_fetch_bytes) == (52_428_800, 1_048_576)
    assert not settings.read_committed


def test_names_in_any_case_and_other_options() -> None:
    settings = ClientSettings.from_options(
        {
            **SERVERS,
            "KAFKA.Isolation.Level": "READ_COMMITTED",
            "kafka.fetch.max.wait.ms": "7",
            "kafka.group.id": "g",
            "kafka.linger.ms": "5",
            "kafka.check.crcs": "false",
            "subscribe": "t",
        }
    )
    assert settings.read_committed
    assert (settings.fetch_max_wait_ms, settings.group_id, settings.check_crcs) == (7, "g", False)
    assert settings.other == (("linger.ms", "5"),)
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("kafka.request.timeout.ms", "0", "from 1 to"),
        ("kafka.fetch.max.bytes", "x", "'x' is not a whole number"),
        ("kafka.isolation.level", "none", "neither read_uncommitted nor read_committed"),
        ("kafka.check.crcs", "1", "neither true nor false"),
        ("kafka.bootstrap.servers", "nonsense", "not an address"),
        ("kafka.bootstrap.servers", "", "kafka.bootstrap.servers is missing"),
    ],
)
def test_wrong_values_are_refused(option: str, value: str, text: str) -> None:
    with pytest.raises(JobError, match=text):
        ClientSettings.from_options({**SERVERS, option: value})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "kafka.sasl.mechanism=GSSAPI: .*it is the mechanism where none is set"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "needs the options username and password"),
        ({"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": "x y z;"}, r"kafka.sasl.jaas.config=\(hidden\): "),
        ({"kafka.sasl.login.class": "org.example.Login"}, "gregor loads no classes of Java"),
        ({"kafka.security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_security_that_is_not_built_is_refused_with_the_reason(options: dict[str, str], text: str) -> None:
    with pytest.raises(KafkaFailure, match=text) as failed:
        ClientSettings.from_options({**SERVERS, "kafka.security.protocol": "SASL_PLAINTEXT", **options})
    assert failed.value.code == ErrorCode.SECURITY_DISABLED
    assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)


def test_secrets_are_kept_for_the_workers_and_shown_nowhere() -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=anna password=a-secret;"
    settings = ClientSettings.from_options(
        {
            **SERVERS,
            "kafka.security.protocol": "sasl_plaintext",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": login,
        }
    )
    again = pickle.loads(pickle.dumps(settings))
    assert again == settings
    assert again.security.new_mechanism("localhost").first() == b"\0anna\0a-secret"
    assert again.other == ()
    for shown in (repr(again), repr(again.security)):
        assert "a-secret" not in shown
