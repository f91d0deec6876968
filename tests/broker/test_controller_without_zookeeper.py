"""A controller without a way to ZooKeeper answers requests in time, and changes that it gave up stay undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gregor.broker.launch.zookeeper_server import ZooKeeperMissing
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ApiMessage,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from gregor.protocol.turns import run_all
from gregor.replication.store import nodes
from gregor.replication.store.time_limit import MIN_MS
from tests.support.gate import Gate
from tests.support.gregor_cluster import GregorCluster, until
from tests.support.topic_settings import alteration
from tests.support.wire import TIMEOUT_S, RawConnection

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.very_slow]

CUT_OFF, OTHER = 7, 8
VERSIONS = {CreateTopicsRequest: 5, DeleteTopicsRequest: 5, CreatePartitionsRequest: 2}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[GregorCluster]:
    try:
        with GregorCluster(tmp_path, 0) as cluster:
            yield cluster
    except ZooKeeperMissing as error:
        pytest.skip(str(error))


def creation(name: str, timeout_ms: int = 1000) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


def error_of(answer: Any) -> ErrorCode:
    for answers in ("topics", "responses", "results"):
        if hasattr(answer, answers):
            (one,) = getattr(answer, answers)
            return ErrorCode(one.error_code)
    raise AssertionError(answer)


def test_requests_to_a_controller_that_has_lost_zookeeper(cluster: GregorCluster) -> None:
    with Gate(cluster.zookeeper.port) as gate:
        broker = cluster.add(CUT_OFF, {"zookeeper.connect": f"127.0.0.1:{gate.port}"})
        cluster.start(CUT_OFF)

        def asked(*requests: ApiMessage) -> list[ErrorCode]:
            """At the same time, each on a connection of its own, which waits for TIMEOUT_S at most."""
            connections = [RawConnection(broker.port) for _ in requests]
            for connection, request in zip(connections, requests, strict=True):
                connection.send(request, VERSIONS.get(type(request), 0))
            answers = [connection.receive()[1] for connection in connections]
            for connection in connections:
                connection.close()
            return [error_of(answer) for answer in answers]

        assert asked(creation("before", 30_000)) == [ErrorCode.NONE]
        gate.shut()
        until(lambda: "The connection to ZooKeeper is lost" in broker.log(), "it has noticed")
        left = RawConnection(broker.port)
        left.send(creation("left"), 5)
        left.close()
        wider = CreatePartitionsRequest.CreatePartitionsTopic(name="before", count=2)
        requests = [
            creation("refused", 3000),
            DeleteTopicsRequest(topic_names=["before"], timeout_ms=1000),
            CreatePartitionsRequest(topics=[wider], timeout_ms=1000),
        ]
        assert TIMEOUT_S > MIN_MS / 1000
        assert asked(*requests) == [ErrorCode.REQUEST_TIMED_OUT] * len(requests)
        # One that names no time, and is done after all, since there is a connection in time.
        with RawConnection(broker.port) as connection:
            correlation_id = connection.send(alteration("before", "retention.ms", "1"), 0)
            gate.open()
            answered, answer = connection.receive()
            assert (answered, error_of(answer)) == (correlation_id, ErrorCode.NONE)
        made = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
        until(lambda: made.issuperset(asked(creation("after", 10_000))), "topics are made again")
        assert sorted(cluster.nodes.get_children(nodes.TOPICS)) == ["after", "before"]
        assert cluster.nodes.get_children(nodes.DELETE_TOPICS) == []
        kept = run_all(nodes.decode_topic("before", cluster.nodes.get(nodes.topic_path("before"))[0]))
        assert list(kept.partitions) == [0]

        cluster.add(OTHER)
        cluster.start(OTHER)
        gate.shut()
        until(lambda: cluster.controller() == OTHER, "another is the controller")
        gate.open()
        until(lambda: asked(creation("later")) == [ErrorCode.NOT_CONTROLLER], "it knows that it is not")
