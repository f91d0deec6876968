"""LAG-SECONDS of `gregor groups --describe` against a running broker, beside the records that a test wrote."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from gregor.broker.__main__ import main
from tests.broker.cli.tool import Tool
from tests.compat.confluent import commit_offsets
from tests.support.processes import BrokerProcess

pytestmark = pytest.mark.slow

STEP_MS = 100_000
"""Between two records: a result that belongs to another record is far off."""
TOLERANCE_S = 0.010
KEYS = {"key": b"k", "value": b"v"}


class Written:
    """A topic, with the timestamps of the records that its test wrote."""

    def __init__(self, bootstrap: str, partitions: int, *settings: str) -> None:
        self.topic = f"lag-{time.time_ns()}"
        self.group = f"{self.topic}-g"
        self.tool = Tool(bootstrap)
        self._bootstrap = bootstrap
        self._now_ms = time.time_ns() // 1_000_000
        self.tool.run("topics", "--create", "--topic", self.topic, "--partitions", str(partitions), *settings)

    def timestamp_ms(self, number: int) -> int:
        return self._now_ms - (100 - number) * STEP_MS

    def write(self, partition: int, numbers: Sequence[int], *, commit: bool | None = None) -> None:
        """Write records of one key in one batch; in a transaction with this end, if there is one."""
        settings = {"bootstrap.servers": self._bootstrap, "linger.ms": 1000}
        if commit is not None:
            settings["transactional.id"] = f"{self.topic}-{partition}"
        producer = Producer(settings)
        if commit is not None:
            producer.init_transactions(60)
            producer.begin_transaction()
        for number in numbers:
            producer.produce(self.topic, partition=partition, timestamp=self.timestamp_ms(number), **KEYS)
        assert producer.flush(60) == 0
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)(60)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit as a consumer, which waits until the group's coordinator has loaded its log."""
        parts = [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": self.group})
        try:
            commit_offsets(consumer, parts)
        finally:
            consumer.close()

    def shown(self, expected: Mapping[int, tuple[str, int | None]]) -> None:
        """Compare the output: for each partition its lag, and the number of its first unread record or None."""
        before_s = time.time()
        lines = self.tool.run("groups", "--describe", "--group", self.group).splitlines()
        after_s = time.time()
        rows = {int(row[2]): row for row in map(str.split, lines) if row and row[0] == self.group}
        assert rows.keys() == expected.keys()
        for partition, (lag, number) in expected.items():
            assert rows[partition][5] == lag, rows[partition]
            seconds = float(rows[partition][9])
            if number is None:
                assert seconds == 0, rows[partition]
            else:
                written_s = self.timestamp_ms(number) / 1000
                assert before_s - written_s - TOLERANCE_S <= seconds <= after_s - written_s + TOLERANCE_S, (
                    f"partition {partition}: {rows[partition]}"
                )


def test_seconds_behind_are_the_age_of_the_first_unread_record(bootstrap: str, tmp_path: Path) -> None:
    written = Written(bootstrap, 7)
    for partition in (0, 1, 3):
        written.write(partition, range(5))
    written.write(4, [0], commit=True)
    written.write(5, [0, 1], commit=False)
    written.write(5, [2])
    written.write(6, range(3))
    file = tmp_path / "deleted.json"
    file.write_text(json.dumps({"partitions": [{"topic": written.topic, "partition": 3, "offset": 2}]}))
    written.tool.run("delete-records", "--offset-json-file", str(file))
    # Inside a batch; at the end; in an empty partition; before the log start offset; before a marker alone; at a
    # marker that a record follows; and at the first record.
    written.commit({0: 3, 1: 5, 2: 0, 3: 0, 4: 1, 5: 2, 6: 0})
    written.shown({0: ("2", 3), 1: ("0", None), 2: ("0", None), 3: ("5", 2), 4: ("1", None), 5: ("2", 2), 6: ("3", 0)})


def test_seconds_behind_in_a_compacted_log(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    written = Written(broker.bootstrap, 1, "--config", "cleanup.policy=compact")
    written.write(0, range(5))
    assert main(["compact", "--topic", written.topic, "--data-dir", str(broker.folder / "data")]) == 0
    assert "1 of 5 records remain" in capsys.readouterr().out
    written.write(0, range(5, 7))
    written.commit({0: 1})  # the records 1 to 3 are gone
    written.shown({0: ("6", 4)})
