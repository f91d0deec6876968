"""Clients that send all kinds of things in all kinds of pieces, and leave in the middle: nothing may stay behind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gregor.broker.net.connection import Connection
from gregor.broker.parts import Broker
from gregor.broker.server import Server
from gregor.config.broker import BrokerConfig
from gregor.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
)
from gregor.replication.admin.topics import NewTopic
from tests.broker.harness import batch, fetch_request, message_set, produce_request, request_frame

CLIENTS, CONNECTIONS = 8, 8
REQUEST_BYTES = 4_000_000
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "socket.request.max.bytes": str(REQUEST_BYTES),
    "queued.max.request.bytes": str(2 * REQUEST_BYTES),
    "queued.max.requests": "10",
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "2",
    "max.incremental.fetch.session.cache.slots": "5",
}
CONFIGS: list[dict[str, str]] = [
    {},
    {"cleanup.policy": "compact"},
    {"compression.type": "gzip"},
    {"flush.messages": "1"},
]


class Client:
    """A stream of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def request(self) -> tuple[Any, int]:
        chance = self.chance
        topic, index = chance.choice("abcd"), chance.randrange(2)
        match chance.randrange(14):
            case 0 | 1 | 2:
                records = batch((b"k", os.urandom(chance.choice([10, 1_000, 100_000, 900_000]))))
                return produce_request(topic, records, partition=index, acks=chance.choice([0, 1, -1])), 9
            case 3:
                records = message_set(1, bytes(chance.choice([10, 20_000])))
                return produce_request(topic, records, partition=index, acks=chance.choice([0, 1])), 2
            case 4 | 5 | 6 | 7:
                wanted = [(topic, index, 0), ("ab"[index], 1 - index, chance.choice([0, 0, 5]))]
                patience = {"max_wait_ms": chance.choice([0, 50, 2_000]), "min_bytes": chance.choice([1, 10**9])}
                request = fetch_request(wanted, partition_max_bytes=chance.choice([100, 10**7]), **patience)
                request.session_id, request.session_epoch = chance.choice([(0, -1), (0, -1), (0, 0), (5, 3)])
                return request, chance.choice([3, 11, 12])
            case 8:
                return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)]), 9
            case 9:
                return join_group(f"g{index}"), chance.choice([2, 9])
            case 10:
                configs = [
                    CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                    for key, value in chance.choice(CONFIGS).items()
                ]
                return create_topic("d", configs), 5
            case 11:
                return DeleteTopicsRequest(topic_names=["d"], timeout_ms=2_000), 5
            case 12:
                return commit(f"s{index}", topic), 8
            case _:
                return FindCoordinatorRequest(key="g", key_type=0), 3

    async def visit(self, port: int) -> None:
        """One connection, from its beginning to some end of it."""
        chance = self.chance
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
        for _ in range(chance.randrange(1, 6)):
            data = b"".join(request_frame(*self.request()) for _ in range(chance.choice([1, 1, 2, 6])))
            if chance.random() < 0.05:
                data = os.urandom(chance.randrange(1, 200))
            elif chance.random() < 0.15:
                data = data[: chance.randrange(1, len(data) + 1)]
            step = chance.choice([7, 1_000, 10**7]) if len(data) < 20_000 else chance.choice([30_000, 10**7])
            for position in range(0, len(data), step):
                writer.write(data[position : position + step])
                if chance.random() < 0.2:
                    await asyncio.sleep(0)
            if chance.random() < 0.5:
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(chance.choice([10, 10**7])), chance.choice([0.01, 0.1]))
        match chance.randrange(4):
            case 0:
                writer.transport.abort()
            case 1 if (connected := writer.get_extra_info("socket")) is not None:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            case 2:
                writer.write_eof()
                await asyncio.sleep(0.01)
        writer.close()


def create_topic(name: str, configs: list[CreateTopicsRequest.CreatableTopicConfig]) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=configs)
    return CreateTopicsRequest(topics=[topic], timeout_ms=2_000)


def join_group(group: str) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=500,
        rebalance_timeout_ms=1_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def commit(group: str, topic: str) -> OffsetCommitRequest:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    one = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[part])
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[one])


def connections_in_memory() -> int:
    return sum(type(one) is Connection for one in gc.get_objects())


def left_behind(broker: Broker, connections_before: int) -> dict[str, Any]:
    """All that connections may hold, where there is any."""
    budget = broker.receive_budget
    held = {
        "connections": len(broker.connections),
        "addresses": broker.connections.addresses,
        "queued": broker.connections.queued,
        "receiving": budget.used_bytes + budget.waiting,
        "routes": broker.route_slots.used,
        "unfinished": len(broker.background._kept),
        "waiting": sum(len(partition.delayed) for partition in broker.replicas.partitions.values()),
        "in memory": connections_in_memory() - connections_before,
    }
    return {name: found for name, found in held.items() if found}


async def nothing_left(broker: Broker, connections_before: int) -> None:
    """In the end, for which it waits."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 30
    while (left := left_behind(broker, connections_before)) and loop.time() < end_s:
        await asyncio.sleep(0.1)
        gc.collect()
    assert not left
    assert len(broker.fetch_sessions) <= 5


@pytest.mark.slow
def test_nothing_is_left_of_clients_that_are_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:

    gc.collect()
    connections_before = connections_in_memory()

    async def test() -> None:
        server = Server(BrokerConfig({**SETTINGS, "log.dirs": str(tmp_path)}))
        await server.start()
        port = server.info.listeners[0][2]
        await server.broker.admin.create_topics([NewTopic(name, 2) for name in "abc"])

        async def visits(seed: int) -> None:
            client = Client(seed)
            for _ in range(CONNECTIONS):
                with suppress(OSError, RuntimeError):  # the broker ended the connection
                    await client.visit(port)

        try:
            await asyncio.gather(*(visits(seed) for seed in range(CLIENTS)))
            await nothing_left(server.broker, connections_before)
        finally:
            await server.stop()

    thresholds = gc.get_threshold()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    assert not [record.message for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
