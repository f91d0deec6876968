"""Requests about thousands of things at once: others get their turn in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from protocol.messages import (
    AlterConfigsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    IncrementalAlterConfigsRequest,
)
from replication import turns
from tests.broker.harness import Harness

MANY = 50
TOPIC = 2

REQUESTS: dict[str, tuple[Any, int]] = {
    "DeleteRecords": (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name="no-topic",
                    partitions=[
                        DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=0)
                        for index in range(MANY)
                    ],
                )
            ]
        ),
        2,
    ),
    "DescribeConfigs": (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC, resource_name=f"no-{number}")
                for number in range(MANY)
            ]
        ),
        4,
    ),
    "AlterConfigs": (
        AlterConfigsRequest(
            resources=[
                AlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name=f"no-{number}")
                for number in range(MANY)
            ]
        ),
        2,
    ),
    "IncrementalAlterConfigs": (
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=TOPIC, resource_name=f"no-{number}")
                for number in range(MANY)
            ]
        ),
        1,
    ),
    "DescribeTopicPartitions": (
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=f"no-{number}") for number in range(MANY)]
        ),
        0,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_others_get_their_turn(harness: Harness, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    request, version = REQUESTS[name]
    monkeypatch.setattr(turns, "TURN_S", -1.0)  # time is up after each step

    async def turns_taken() -> int:
        taken = 0
        asked = asyncio.ensure_future(harness._ask(request, version, "tests"))
        while not asked.done():
            taken += 1
            await asyncio.sleep(0)
        return taken

    assert harness.run(turns_taken()) >= MANY
