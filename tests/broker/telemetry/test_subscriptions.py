"""gregor.broker.telemetry.subscriptions: which clients a subscription matches, and the sum of several."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.telemetry.subscriptions import DEFAULT_INTERVAL_MS, Selection, Subscriptions
from gregor.config.tables.client_metrics import CLIENT_METRICS_KEYS
from gregor.protocol.ids import uuid_from_text

JAVA = {"client_id": "billing-7", "client_software_name": "apache-kafka-java", "client_source_port": "5555"}
ID = uuid_from_text("AAECAwQFBgcICQoLDA0ODw")


def subscriptions(**texts: dict[str, str]) -> Subscriptions:
    store: Any = SimpleNamespace()
    found = Subscriptions(store)
    found.use(texts)
    return found


def test_without_a_subscription_nothing_is_requested() -> None:
    assert subscriptions().selected_by(JAVA) == Selection((), DEFAULT_INTERVAL_MS)
    assert CLIENT_METRICS_KEYS["interval.ms"].default == DEFAULT_INTERVAL_MS


def test_metrics_of_all_that_match_at_the_shortest_interval() -> None:
    found = subscriptions(
        a={"metrics": "org.b,org.a", "interval.ms": "60000"},
        b={"metrics": "org.c,org.a", "interval.ms": "30000", "match": "client_id=billing-.*"},
        c={"metrics": "*", "interval.ms": "100", "match": "client_id=other"},
        d={},
    )
    assert found.selected_by(JAVA) == Selection(("org.a", "org.b", "org.c"), 30_000)
    assert found.selected_by({"client_id": "other"}) == Selection(("*",), 100)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=billing", False),
        ("client_id=billing-[0-9]", True),
        ("client_id=.*,client_software_name=librdkafka", False),
        ("client_software_name=apache-kafka-java,client_source_port=5+", True),
        ("client_software_version=.*", False),
    ],
    ids=["part of the name", "whole name", "one of two", "both", "unknown attribute"],
)
def test_patterns_match_whole_values_and_all_of_them(match: str, matches: bool) -> None:
    found = subscriptions(a={"metrics": "*", "match": match}).selected_by(JAVA)
    assert found.metrics == (("*",) if matches else ())


def test_pattern_that_re2_does_not_know_is_not_in_effect(caplog: pytest.LogCaptureFixture) -> None:
    found = subscriptions(a={"metrics": "*", "match": "client_id=(?=x)x"}, b={"metrics": "org.b"})
    assert found.selected_by(JAVA).metrics == ("org.b",)
    assert "client metrics subscription a is not in effect" in caplog.text


def test_expression_with_backtracking_needs_no_time() -> None:
    found = subscriptions(a={"metrics": "*", "match": "client_id=(a+)+b"})
    assert found.selected_by({"client_id": "a" * 5000}).metrics == ()


def test_subscription_ids_are_those_of_apache_kafka() -> None:
    """CRC-32C of the text of Java's set and the interval, exclusive or Uuid.hashCode."""

    crc = _crc32c(b"[*]300000")
    high, low = 0x0001020304050607, 0x08090A0B0C0D0E0F
    both = high ^ low
    expected = crc ^ (both >> 32 ^ both) & 0xFFFFFFFF
    assert Selection(("*",), 300_000).subscription_id(ID) & 0xFFFFFFFF == expected


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_metrics_that_are_included() -> None:
    assert Selection(("*",), 1).includes("anything")
    assert Selection(("org.a", "org.b"), 1).includes("org.bc")
    assert not Selection(("org.a",), 1).includes("org.b")
    assert not Selection((), 1).includes("org.b")
