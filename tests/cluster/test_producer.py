"""The producer counts what it has sent, from the statistics and the log of its library."""

from __future__ import annotations

import json
import logging

import pytest

from tests.cluster.producer import Log, Statistics

BATCH = (
    "MSGSET [rdkafka#producer-1] [thrd:h:1/2]: h:1/2: chaos [4]: MessageSet with {} message(s) (MsgId 7, BaseSeq 6) "
)


def test_records_count_as_often_as_they_were_sent() -> None:
    statistics = Statistics()
    for sent in (3, 7):
        partitions = {"0": {"txmsgs": sent}, "1": {"txmsgs": 10}, "-1": {"txmsgs": 0}}
        statistics.renew(json.dumps({"topics": {"chaos": {"partitions": partitions}}}))
    assert (statistics.renewals, statistics.records_sent("chaos")) == (2, 17)


@pytest.mark.parametrize(
    ("end", "refused"),
    [
        ("delivered", 0),
        ("encountered error: Broker: Request timed out (actions Retry,MsgPossiblyPersisted)", 0),
        ("encountered error: Broker: Not leader for partition (actions Refresh,MsgNotPersisted) [NOT LEADER]", 0),
        ("encountered error: Local: Retry operation (actions Retry)", 164),
        ("encountered error: Broker: Not enough in-sync replicas (actions Retry,MsgNotPersisted)", 164),
    ],
)
def test_batches_that_a_broker_has_refused_are_known_from_the_log(
    end: str, refused: int, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log()
    line = BATCH.format(164) + end
    log.emit(logging.makeLogRecord({"msg": line}))
    assert log.refused == refused
    assert (line in capsys.readouterr().err) == (end != "delivered")
