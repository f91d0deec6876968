"""Copies one topic into another in transactions with confluent-kafka; launch.py documents arguments and lines."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.cluster.stuck import end_when_locked_up
from tests.compat.copiers.commands import Commands, copied, output_partition, report, settings

WAIT_S = 120.0
CALL_S = 15.0
"""For one call, which is then repeated."""
STUCK_S = 20.0
"""librdkafka 2.16 waits in vain, beyond the timeout of a call, for a coordinator whose broker it has decommissioned."""
MAX_TIMEOUTS = 3
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
FENCED_EXIT, STUCK_EXIT = 3, 4
QUICK: dict[str, str | int] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "socket.timeout.ms": 10_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    # librdkafka 2.16 loses a request to a transaction coordinator that it has decommissioned in a re-bootstrap.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


def retried(call: Callable[[], None]) -> None:
    """Repeat a call that librdkafka calls retriable: its own time for it was over. One that never returns ends the
    program."""
    while True:
        watch = threading.Timer(STUCK_S, end_stuck)
        watch.start()
        try:
            return call()
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
        finally:
            watch.cancel()


def end_stuck() -> None:
    report("stuck")
    os._exit(STUCK_EXIT)


class Copier:
    def __init__(self, config: dict[str, str]) -> None:
        self._config = config
        self._commands = Commands()
        self._dice = random.Random(config["seed"])
        self._common = {"bootstrap.servers": config["bootstrap"], **QUICK}
        self._consumer = self._new_consumer()
        self._producer = self._new_producer()
        assigned = config.get("partitions", "")
        if assigned:
            self._consumer.assign(self._committed(TopicPartition(config["input"], int(n)) for n in assigned.split(",")))
        else:
            self._consumer.subscribe([config["input"]])
        report("ready")

    def _new_consumer(self) -> Consumer:
        classic: dict[str, str | int] = {"heartbeat.interval.ms": 1000, "session.timeout.ms": 10_000}
        is_new = self._config.get("protocol") == "consumer"
        return Consumer(
            {
                **self._common,
                "group.id": self._config["group"],
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                **({"group.protocol": "consumer"} if is_new else classic),
            }
        )

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                **self._common,
                "transactional.id": self._config["id"],
                "debug": "eos",  # for the analysis of a failure
                "log_level": 7,
                "transaction.timeout.ms": int(self._config["timeout_ms"]),
                "socket.timeout.ms": min(int(self._config["timeout_ms"]), 10_000),
                "linger.ms": 5,
            }
        )
        retried(lambda: producer.init_transactions(CALL_S))
        return producer

    def _committed(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions with the offset from which to copy."""
        found = self._fetch_committed(list(partitions))
        for one in found:
            if one.offset < 0:
                one.offset = OFFSET_BEGINNING
        return found

    def _fetch_committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Repeat the request while the coordinator of the group moves: librdkafka does not. It sometimes finds none
        until it is started anew: then the program ends."""
        deadline = time.monotonic() + WAIT_S
        timeouts = 0
        while True:
            try:
                found = self._consumer.committed(partitions, CALL_S)
                errors = [one.error for one in found if one.error is not None]
                if not errors:
                    return found
                raise KafkaException(errors[0])
            except KafkaException as failure:
                if time.monotonic() > deadline:
                    raise
                report(f"waits {failure.args[0].name()}")
                timeouts += failure.args[0].code() == KafkaError._TIMED_OUT
                if timeouts == MAX_TIMEOUTS:
                    end_stuck()
                time.sleep(0.1)

    def run(self) -> None:
        number = 0
        while not self._commands.stopped:
            found = self._consumer.consume(int(self._config["size"]), 0.1)
            records = [one for one in found if one.error() is None]
            if not records:
                continue
            commit = self._dice.randrange(100) >= int(self._config["aborts"])
            try:
                self._copy(records, number, commit)
            except KafkaException as failure:
                self._recover(number, failure.args[0])
                commit = False
            if not commit:
                for partition in self._committed(self._consumer.assignment()):
                    self._consumer.seek(partition)
            number += 1
        self._consumer.close()
        report("closed")

    def _copy(self, records: list[Message], number: int, commit: bool) -> None:
        fate = "commit" if commit else "abort"
        phase, producer, config = self._commands.phase, self._producer, self._config
        phase("begun", number, fate)
        producer.begin_transaction()
        ends: dict[int, int] = {}
        for record in records:
            value, partition, offset = record.value(), record.partition(), record.offset()
            assert value is not None and partition is not None and offset is not None
            target = output_partition(value, int(config["outputs"]))
            producer.produce(config["output"], copied(value, config["label"], number, fate), partition=target)
            ends[partition] = offset + 1
        producer.flush(WAIT_S)
        phase("produced", number, len(records))
        offsets = [TopicPartition(config["input"], partition, end) for partition, end in ends.items()]
        group = self._consumer.consumer_group_metadata()
        retried(lambda: producer.send_offsets_to_transaction(offsets, group, CALL_S))
        phase("offsets", number)
        phase("ending", number, fate)
        end = producer.commit_transaction if commit else producer.abort_transaction
        retried(lambda: end(CALL_S))
        phase("ended", number, fate)

    def _recover(self, number: int, error: KafkaError) -> None:
        """Abort the transaction, or begin with a new producer; a fenced one ends the program."""
        report(f"failed {number} {error}")
        if error.code() in FENCED:
            report("fenced")
            sys.exit(FENCED_EXIT)
        try:
            retried(lambda: self._producer.abort_transaction(CALL_S))
        except KafkaException as failure:
            report(f"restarted {number} {failure.args[0]}")
            if failure.args[0].code() in FENCED:
                report("fenced")
                sys.exit(FENCED_EXIT)
            self._producer = self._new_producer()


if __name__ == "__main__":
    end_when_locked_up()
    Copier(settings()).run()
