"""The log of requests and of slow ones, of a broker whose clients' bytes are the same with and without it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.jobs import loggers
from gregor.broker.request_log import observed
from gregor.broker.request_log.line_rate import MAX_LINES
from gregor.broker.request_log.log import request_logger, slow_logger
from gregor.broker.request_log.observed import NS_PER_MS
from gregor.protocol.messages import (
    CreateTopicsRequest,
    FetchRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
)
from tests.broker.harness import Harness, Wire, batch, fetch_request, produce_request, request_frame

BROKER, BROKER_LOGGER, SET, DELETE = 4, 8, 0, 1
TOPIC = "t"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    level = request_logger.level
    one = Harness(tmp_path).start()
    topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    one.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    yield one
    one.stop()
    request_logger.setLevel(level)


class Lines(logging.Handler):
    """The lines of both logs."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[logging.LogRecord, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append((record, record.getMessage()))

    def take(self) -> list[dict[str, Any]]:
        """Return the objects of the lines about requests, and remove them."""
        found = [json.loads(text.partition(":{")[2].join(("{", ""))) for _, text in self.all if ":{" in text]
        self.all.clear()
        return found


@pytest.fixture
def lines() -> Iterator[Lines]:
    found = Lines()
    for logger in (request_logger, slow_logger):
        logger.addHandler(found)
    yield found
    for logger in (request_logger, slow_logger):
        logger.removeHandler(found)


class Clock:
    """The time by which requests are measured; it stands still until a test moves it."""

    def __init__(self) -> None:
        self._now_ns = 0

    def __call__(self) -> int:
        return self._now_ns

    def advance(self, ms: int) -> None:
        self._now_ns += ms * NS_PER_MS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(observed, "perf_counter_ns", found)
    return found


def set_level(harness: Harness, level: str | None, logger: str = "kafka.request.logger") -> None:
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name=logger, config_operation=SET if level else DELETE, value=level
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_LOGGER, resource_name=str(harness.broker.broker_id), configs=[config]
    )
    response = harness.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0, response


def set_slow_ms(harness: Harness, value: str | None) -> None:
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name="gregor.slow.request.log.ms", config_operation=SET if value is not None else DELETE, value=value
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name="", configs=[config]
    )
    response = harness.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0, response


def test_it_is_off_at_first_and_the_root_logger_does_not_switch_it_on(harness: Harness) -> None:
    assert harness.broker.request_log is None
    assert loggers.levels()["kafka.request.logger"] == "WARN"
    root = logging.getLogger().level
    try:
        set_level(harness, "DEBUG", "root")
        assert harness.broker.request_log is None
    finally:
        logging.getLogger().setLevel(root)


def test_levels_switch_it_on_and_off_for_open_connections(harness: Harness, lines: Lines) -> None:
    wire = Wire(harness)
    wire.ask(MetadataRequest(topics=[]), 9)
    set_level(harness, "DEBUG")
    wire.ask(MetadataRequest(topics=[]), 9)
    (line,) = lines.take()
    assert line["requestHeader"] == {
        "requestApiKey": 3,
        "requestApiVersion": 9,
        "correlationId": 7,
        "clientId": "tests",
        "requestApiKeyName": "METADATA",
    }
    assert line["requestSizeBytes"] == len(request_frame(MetadataRequest(topics=[]), 9)) - 4
    assert line["principal"] == "User:ANONYMOUS"
    assert line["listener"] == "PLAINTEXT"
    assert line["connection"] == f"127.0.0.1:9092-127.0.0.1:5555-{wire.connection.number}"
    assert line["throttleTimeMs"] == 0
    assert 0 <= line["requestQueueTimeMs"] + line["localTimeMs"] <= line["totalTimeMs"]
    assert "request" not in line
    set_level(harness, "WARN")
    assert harness.broker.request_log is None
    wire.ask(MetadataRequest(topics=[]), 9)
    assert not lines.take()
    wire.close()


def test_produce_by_its_fast_path_is_logged_and_its_response_is_the_same(harness: Harness, lines: Lines) -> None:
    wire, request = Wire(harness), produce_request(TOPIC, batch(b"v"))
    wire.ask(request, 9)  # learns the route
    plain = wire.ask(request, 9)
    set_level(harness, "DEBUG")
    begin = len(wire.transport.written)
    logged = wire.ask(request, 9)
    size = len(wire.transport.written) - begin
    first, again = plain.responses[0].partition_responses[0], logged.responses[0].partition_responses[0]
    assert again.base_offset == first.base_offset + 1
    again.base_offset = first.base_offset
    assert plain == logged
    refused = produce_request("unknown", batch(b"v"))
    wire.ask(refused, 9)
    line, of_refused = lines.take()
    assert line["responseSizeBytes"] == size
    assert line["errors"] == {"NONE": 1}
    assert of_refused["errors"] == {"UNKNOWN_TOPIC_OR_PARTITION": 1}
    wire.close()


def test_requests_without_a_response_are_logged(harness: Harness, lines: Lines) -> None:
    wire = Wire(harness)
    set_level(harness, "DEBUG")
    request = produce_request(TOPIC, batch(b"v"))
    request.acks = 0
    for _ in range(3):  # by the general handler, then by the fast path
        wire.send(request_frame(request, 9))
    found = lines.take()
    assert [line["responseSizeBytes"] for line in found] == [0, 0, 0]
    assert not wire.transport.written
    wire.close()


def test_fetch_that_waits_is_logged_at_its_end(harness: Harness, lines: Lines, clock: Clock) -> None:
    wire = Wire(harness)
    wire.ask(produce_request(TOPIC, batch(b"v")), 9)
    set_level(harness, "DEBUG")
    set_slow_ms(harness, "1000000")
    fetch = fetch_request([(TOPIC, 0, 1)], max_wait_ms=60_000)
    begin = len(wire.transport.written)
    wire.send(request_frame(fetch, 12))
    assert not lines.take()
    clock.advance(30)
    harness.produce(TOPIC, b"news")
    harness.until(lambda: len(wire.transport.written) > begin)
    (line,) = lines.take()
    assert line["requestHeader"]["requestApiKeyName"] == "FETCH"
    assert (line["totalTimeMs"], line["remoteTimeMs"], line["localTimeMs"]) == (30, 30, 0)
    assert line["responseSizeBytes"] == len(wire.transport.written) - begin
    wire.close()


def test_end_of_a_connection_ends_its_request(harness: Harness, lines: Lines) -> None:
    wire = Wire(harness)
    set_level(harness, "DEBUG")
    wire.send(request_frame(fetch_request([(TOPIC, 0, 0)], max_wait_ms=60_000), 12))
    wire.close()
    (line,) = lines.take()
    assert line["responseSizeBytes"] is None and line["errors"] is None
    log = harness.broker.request_log
    assert log is not None and not log.waiting_count


def test_contents_are_shown_at_trace_without_secrets(harness: Harness, lines: Lines) -> None:
    wire = Wire(harness)
    set_level(harness, "TRACE")
    wire.ask(produce_request(TOPIC, batch(b"a secret value")), 9)
    wire.ask(SaslAuthenticateRequest(auth_bytes=b"a secret value"), 2)
    texts = [text for _, text in lines.all]
    produce, login = lines.take()
    assert produce["request"]["topicData"][0]["name"] == TOPIC
    assert produce["response"]["responses"][0]["partitionResponses"][0]["baseOffset"] == 0
    assert login["request"] == {"authBytesSizeInBytes": 14}
    assert login["errors"] == {"ILLEGAL_SASL_STATE": 1}
    assert "secret" not in "".join(texts)
    wire.close()


def test_slow_requests_are_logged_alone(harness: Harness, lines: Lines) -> None:
    wire = Wire(harness)
    set_slow_ms(harness, "60000")
    wire.ask(produce_request(TOPIC, batch(b"v")), 9)
    assert not lines.all
    set_slow_ms(harness, "0")
    wire.ask(produce_request(TOPIC, batch(b"v")), 9)
    ((record, text),) = lines.all
    assert (record.name, record.levelname) == ("gregor.slow.requests", "WARNING")
    assert text.startswith('Slow request (gregor.slow.request.log.ms=0):{"requestHeader":{"requestApiKey":0,')
    set_slow_ms(harness, None)
    assert harness.broker.request_log is None
    wire.close()


def test_wait_that_a_fetch_requests_is_not_slow(harness: Harness, lines: Lines, clock: Clock) -> None:
    wire = Wire(harness)
    set_slow_ms(harness, "100")
    for offset, (lasts_ms, count) in enumerate([(60_099, 0), (60_100, 1)]):
        wire.transport.written.clear()
        wire.send(request_frame(fetch_request([(TOPIC, 0, offset)], max_wait_ms=60_000), 12))
        assert not wire.transport.written
        clock.advance(lasts_ms)
        harness.produce(TOPIC, b"v")
        harness.until(lambda: bool(wire.transport.written))
        assert len(lines.all) == count
    wire.close()


@pytest.mark.slow
def test_burst_is_cut_and_the_rest_is_counted(harness: Harness, lines: Lines) -> None:
    wire = Wire(harness)
    set_level(harness, "DEBUG")
    burst = request_frame(MetadataRequest(topics=[]), 9) * (3 * MAX_LINES)
    wire.send(burst)
    harness.until(lambda: any("are left out" in text for _, text in lines.all))
    record, text = next((record, text) for record, text in lines.all if "are left out" in text)
    left_out = int(text.split()[0])
    assert len(lines.take()) + left_out == 3 * MAX_LINES
    assert record.levelname == "INFO"
    wire.close()


def test_refused_bytes_leave_nothing_behind(harness: Harness) -> None:
    set_level(harness, "DEBUG")
    log = harness.broker.request_log
    assert log is not None
    for cut in range(1, 12):
        wire = Wire(harness)
        frame = request_frame(FetchRequest(), 12)
        body = frame[4 : len(frame) - cut]
        wire.send(len(body).to_bytes(4) + body)
        assert wire.transport.aborted
        assert not log.waiting_count


def test_switched_off_while_a_request_is_served(harness: Harness, lines: Lines) -> None:
    wire = Wire(harness)
    set_level(harness, "DEBUG")
    begin = len(wire.transport.written)
    wire.send(request_frame(fetch_request([(TOPIC, 0, 0)], max_wait_ms=60_000), 12))
    set_level(harness, "WARN")
    harness.produce(TOPIC, b"v")
    harness.until(lambda: len(wire.transport.written) > begin)
    assert not lines.take()
    wire.close()
