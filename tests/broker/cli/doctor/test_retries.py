"""gregor.broker.cli.doctor.retries: clients that send batches again and again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gregor.broker.__main__ import main
from gregor.broker.cli.doctor.checks import Level
from gregor.broker.cli.doctor.retries import MIN_REPEATS, check_retries, examine_retries
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import InitProducerIdRequest, ProduceRequest
from gregor.protocol.records.batch import build_batch
from tests.broker.cli.tool import Tool
from tests.support.processes import BrokerProcess
from tests.support.wire import RawConnection


def test_clients_above_the_threshold_are_named_with_the_error() -> None:
    rows = [("a", "NOT_ENOUGH_REPLICAS", MIN_REPEATS), ("b", "NOT_ENOUGH_REPLICAS", MIN_REPEATS - 1)]
    rows.append(("c", "DUPLICATE_SEQUENCE_NUMBER", MIN_REPEATS))
    found = check_retries({"client_id": name, "error_name": error, "recent": recent} for name, error, recent in rows)
    assert [one.level for one in found] == [Level.NOTE, Level.NOTE]
    assert [one.text for one in found] == [
        "client 'a' retries: 100 of its batches were refused with NOT_ENOUGH_REPLICAS in the last 5 to 10 min",
        "client 'c' retries: it sent 100 batches again that the broker has in the last 5 to 10 min",
    ]
    assert all(one.remedy for one in found)


def test_broker_that_does_not_run_has_no_finding(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'data'}\n")
    assert examine_retries(str(file)) == []


@pytest.mark.slow
def test_client_that_sends_a_batch_again_and_one_that_is_refused_are_named(
    broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"retried-{time.time_ns()}"
    Tool(broker.bootstrap).run("topics", "--create", "--topic", topic)
    with RawConnection(broker.port) as connection:
        made = connection.exchange(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 2)
        batch = build_batch(
            [(b"k", b"v")], timestamp_ms=1, producer_id=made.producer_id, producer_epoch=0, base_sequence=0
        )
        broken = bytearray(batch)
        broken[-1] ^= 1
        answers = []
        for records in [bytes(batch)] * (MIN_REPEATS + 1) + [bytes(broken)] * MIN_REPEATS:
            part = ProduceRequest.PartitionProduceData(index=0, records=records)
            data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
            request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=[data])
            (answer,) = connection.exchange(request, 9).responses[0].partition_responses
            answers.append((answer.error_code, answer.base_offset))
    assert answers == [(0, 0)] * (MIN_REPEATS + 1) + [(ErrorCode.CORRUPT_MESSAGE, -1)] * MIN_REPEATS
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={broker.folder / 'data'}\nbroker.id=0\n")
    main(["doctor", "--bootstrap-server", broker.bootstrap, "--config", str(file)])
    lines = capsys.readouterr().out
    assert f"note  client 'raw' retries: it sent {MIN_REPEATS} batches again that the broker has" in lines
    assert f"note  client 'raw' retries: {MIN_REPEATS} of its batches were refused with CORRUPT_MESSAGE" in lines
