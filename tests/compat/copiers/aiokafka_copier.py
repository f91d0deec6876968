"""Copies one topic into another in transactions with aiokafka; launch.py documents arguments and lines."""

from __future__ import annotations

import asyncio
import random
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from aiokafka.structs import ConsumerRecord

from tests.compat.copiers.commands import Commands, copied, output_partition, report, settings

FENCED_EXIT = 3
Records = list[ConsumerRecord[bytes, bytes]]


class Copier:
    def __init__(self, config: dict[str, str]) -> None:
        self._config = config
        self._commands = Commands()
        self._dice = random.Random(config["seed"])
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=config["bootstrap"],
            group_id=config["group"],
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            request_timeout_ms=10_000,
            metadata_max_age_ms=5_000,
        )
        self._producer = AIOKafkaProducer(
            bootstrap_servers=config["bootstrap"],
            transactional_id=config["id"],
            transaction_timeout_ms=int(config["timeout_ms"]),
            request_timeout_ms=10_000,
            metadata_max_age_ms=5_000,
        )

    async def run(self) -> None:
        await self._consumer.start()
        await self._producer.start()
        assigned = self._config.get("partitions", "")
        if assigned:
            self._consumer.assign([TopicPartition(self._config["input"], int(n)) for n in assigned.split(",")])
        else:
            self._consumer.subscribe([self._config["input"]])
        report("ready")
        number = 0
        while not self._commands.stopped:
            found = await self._consumer.getmany(timeout_ms=100, max_records=int(self._config["size"]))
            records = [record for part in found.values() for record in part]
            if not records:
                continue
            commit = self._dice.randrange(100) >= int(self._config["aborts"])
            try:
                await self._copy(records, number, commit)
            except (ProducerFenced, InvalidProducerEpoch):
                report("fenced")
                sys.exit(FENCED_EXIT)
            except KafkaError as error:
                report(f"failed {number} {error!r}")
                await self._producer.abort_transaction()
                commit = False
            if not commit:
                await self._rewind()
            number += 1
        await self._producer.stop()
        await self._consumer.stop()
        report("closed")

    async def _copy(self, records: Records, number: int, commit: bool) -> None:
        fate = "commit" if commit else "abort"
        phase, producer, config = self._commands.phase, self._producer, self._config
        phase("begun", number, fate)
        await producer.begin_transaction()
        ends: dict[TopicPartition, int] = {}
        sent = []
        for record in records:
            assert record.value is not None
            target = output_partition(record.value, int(config["outputs"]))
            value = copied(record.value, config["label"], number, fate)
            sent.append(await producer.send(config["output"], value, partition=target))
            ends[TopicPartition(record.topic, record.partition)] = record.offset + 1
        await asyncio.gather(*sent)
        phase("produced", number, len(records))
        await producer.send_offsets_to_transaction(ends, config["group"])
        phase("offsets", number)
        phase("ending", number, fate)
        await (producer.commit_transaction() if commit else producer.abort_transaction())
        phase("ended", number, fate)

    async def _rewind(self) -> None:
        """Continue from what is committed."""
        for partition in self._consumer.assignment():
            committed = await self._consumer.committed(partition)
            if committed is None:
                await self._consumer.seek_to_beginning(partition)
            else:
                self._consumer.seek(partition, committed)


async def main() -> None:
    await Copier(settings()).run()


if __name__ == "__main__":
    asyncio.run(main())
