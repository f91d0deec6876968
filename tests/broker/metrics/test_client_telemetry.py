"""Clients' metrics on the page of a scrape: names, labels, types, and what cannot be shown."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gregor.broker.metrics.client_telemetry import ClientLines, family_name
from gregor.broker.metrics.page import Page
from gregor.broker.metrics.table import FAMILIES
from gregor.broker.server import Server
from gregor.broker.telemetry.otlp import Point
from gregor.broker.telemetry.subscriptions import Subscriptions
from gregor.broker.telemetry.telemetry import Telemetry
from gregor.protocol.ids import uuid_to_text
from gregor.protocol.messages import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from gregor.protocol.turns import run_all
from tests.broker.metrics.scraped import Series, parsed, series_of
from tests.broker.metrics.test_listener import client_of, with_server
from tests.broker.telemetry.pushes import counter, gauge, point, push

IDS = [number.to_bytes(16) for number in (1001, 1002)]
OWN = [f'client_id="c{n}",client_instance_id="{uuid_to_text(one)}"' for n, one in enumerate(IDS)]


def telemetry_of(*pushes: list[Point]) -> Telemetry:
    """Make a broker's telemetry with one client for each push."""
    store: Any = SimpleNamespace()
    background: Any = None
    found = Telemetry(Subscriptions(store), 1000, background, lambda: 10**12)
    for number, points in enumerate(pushes):
        instance = found.instances.instance(IDS[number], {"client_id": f"c{number}"}, 10**12)
        assert found.instances.keep(instance, points) == 0
    return found


def page_of(telemetry: Telemetry, *, openmetrics: bool = False) -> str:
    lines = ClientLines(telemetry)
    run_all(lines.prepare())
    page = Page(FAMILIES | lines.families)
    run_all(lines.collect(page))
    return b"".join(run_all(page.render(openmetrics=openmetrics))).decode()


def clients(text: str) -> Series:
    return {name: value for name, value in parsed(text).items() if name.startswith("kafka_client_")}


@pytest.mark.parametrize(
    ("metric", "is_counter", "name"),
    [
        ("org.apache.kafka.producer.record.send.total", True, "kafka_client_producer_record_send_total"),
        ("org.apache.kafka.producer.record.send.rate", False, "kafka_client_producer_record_send_rate"),
        ("org.apache.kafka.consumer.polls", True, "kafka_client_consumer_polls_total"),
        ("some.total", False, "kafka_client_some"),
        ('a{b="c"} 1\n', False, "kafka_client_a_b_c_1"),
        ("äöü", False, "kafka_client_unnamed"),
    ],
)
def test_names_of_families(metric: str, is_counter: bool, name: str) -> None:
    assert family_name(metric, is_counter) == name


def test_each_client_has_its_series() -> None:
    points = [Point("org.apache.kafka.a", (("node", "1"),), 2.5, False, False), Point("b", (), 3, True, False)]
    text = page_of(telemetry_of(points, points[1:]))
    assert clients(text) == {
        f'kafka_client_a{{{OWN[0]},node="1"}}': 2.5,
        f"kafka_client_b_total{{{OWN[0]}}}": 3,
        f"kafka_client_b_total{{{OWN[1]}}}": 3,
    }
    assert "# TYPE kafka_client_a gauge" in text and "# TYPE kafka_client_b_total counter" in text
    assert parsed(text)["kafka_server_client_metrics_instances"] == 2


def test_hostile_names_and_labels_cannot_break_the_page() -> None:
    evil = '"} 1\nkafka_brokers 99\n# \\'
    attributes = (("", "x"), ("client_id", "other"), ("1a", evil), (evil, evil))
    text = page_of(telemetry_of([Point(evil, tuple(sorted(attributes)), 1, False, False)]))
    assert "kafka_brokers" not in parsed(text)
    (name,) = clients(text)
    assert name.startswith(f"kafka_client_1_kafka_brokers_99{{{OWN[0]},")
    assert 'attribute_client_id="other"' in name and 'attribute_1a="' in name


def test_two_types_of_one_name_and_equal_series_are_shown_once() -> None:
    points = [
        Point("org.apache.kafka.x", (), 1, True, False),
        Point("x.total", (), 2, True, False),
        Point("x", (), 3, False, False),
    ]
    text = page_of(telemetry_of(points), openmetrics=True)
    assert [line for line in text.splitlines() if line.startswith("kafka_client_")] == [
        f"kafka_client_x_total{{{OWN[0]}}} 1"
    ]


@pytest.mark.slow
def test_pushed_metrics_are_scraped(tmp_path: Path) -> None:
    async def check(server: Server, url: str) -> None:
        telemetry = server.broker.telemetry
        assert telemetry is not None
        telemetry.subscriptions.use({"a": {"metrics": "*"}})
        client = await client_of(server)
        answer = await client.ask(GetTelemetrySubscriptionsRequest(), 0)
        request = PushTelemetryRequest(
            client_instance_id=answer.client_instance_id,
            subscription_id=answer.subscription_id,
            metrics=push(gauge("org.apache.kafka.g", point(1.5)), counter("c.total", point(2))),
        )
        assert not (await client.ask(request, 0)).error_code
        found = await series_of(url)
        labels = f'client_instance_id="{uuid_to_text(answer.client_instance_id)}"'
        values = {name.partition("{")[0]: value for name, value in found.items() if labels in name}
        assert values == {"kafka_client_g": 1.5, "kafka_client_c_total": 2}
        assert found["kafka_server_client_metrics_push_total"] == 1
        client.writer.close()

    with_server(tmp_path, check)
