"""CreateTopics, every version. After Kafka's ControllerApis and ReplicationControlManager."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from gregor.storage.fs.files import OsFiles
from tests.broker.harness import Harness, Wire, request_frame, running

VERSIONS = range(0, 8)
Topic = CreateTopicsRequest.CreatableTopic


def new_topic(name: str, partitions: int = 1, factor: int = 1, configs: Any = (), assignments: Any = ()) -> Topic:
    make_config, make_assignment = (
        CreateTopicsRequest.CreatableTopicConfig,
        CreateTopicsRequest.CreatableReplicaAssignment,
    )
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[make_config(name=key, value=value) for key, value in configs],
        assignments=[make_assignment(partition_index=index, broker_ids=list(ids)) for index, ids in assignments],
    )


def create(harness: Harness, version: int, *topics: Topic, **fields: Any) -> dict[str, Any]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=fields.pop("timeout_ms", 5000), **fields)
    response: CreateTopicsResponse = harness.ask(request, version)
    answers = {topic.name: topic for topic in response.topics}
    assert len(answers) == len(response.topics)
    return answers


def error(harness: Harness, topic: Topic, version: int = 7) -> ErrorCode:
    (answer,) = create(harness, version, topic).values()
    assert answer.topic_id == bytes(16)
    assert bool(answer.error_message) == (version >= 1)
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_ready_when_answered(harness: Harness, topic: str, version: int) -> None:
    (answer,) = create(harness, version, new_topic(topic, 3, configs=[("retention.ms", "12345")])).values()
    assert (answer.name, answer.error_code, answer.error_message or None) == (topic, 0, None)
    state = harness.broker.metadata.topic(topic)
    assert state is not None and len(state.partitions) == 3
    assert answer.topic_id == (state.topic_id if version >= 7 else bytes(16))
    for partition in range(3):
        harness.produce(topic, b"x", partition=partition)
    log = harness.broker.logs.get(topic, 2)
    assert log is not None and log.config.retention_ms == 12345
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor, answer.topic_config_error_code) == (3, 1, 0)
        configs = {config.name: config for config in answer.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("12345", 1)
        assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("1073741824", 5)
        assert not any(config.read_only or config.is_sensitive for config in answer.configs)
    else:
        assert (answer.num_partitions, answer.replication_factor, answer.configs) == (-1, -1, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_minus_one_takes_the_brokers_defaults(harness: Harness, topic: str, version: int) -> None:
    with harness.settings(num_partitions="4"):
        (answer,) = create(harness, version, new_topic(topic, -1, -1)).values()
    assert answer.error_code == 0
    assert harness.broker.metadata.partition_count(topic) == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_an_assignment_by_hand(harness: Harness, topic: str, version: int) -> None:
    wanted = new_topic(topic, -1, -1, assignments=[(1, [0]), (0, [0])])
    (answer,) = create(harness, version, wanted).values()
    assert answer.error_code == 0
    assert harness.broker.metadata.partition_count(topic) == 2


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"factor": -3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"partitions": 10_001}, ErrorCode.POLICY_VIOLATION),
        ({"configs": [("no.such.key", "1")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", "soon")]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", None)]}, ErrorCode.INVALID_CONFIG),
        ({"assignments": [(0, [0])]}, ErrorCode.INVALID_REQUEST),
        ({"partitions": -1, "assignments": [(0, [0])]}, ErrorCode.INVALID_REQUEST),
        ({"partitions": -1, "factor": -1, "assignments": [(1, [0])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"partitions": -1, "factor": -1, "assignments": [(0, [])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"partitions": -1, "factor": -1, "assignments": [(0, [7])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"partitions": -1, "factor": -1, "assignments": [(0, [0, 0])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"partitions": -1, "factor": -1, "assignments": [(0, [0])] * 2}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_made_is_refused(harness: Harness, topic: str, fields: Any, expected: ErrorCode) -> None:
    for version in VERSIONS:
        assert error(harness, new_topic(topic, **fields), version) is expected
    assert harness.broker.metadata.topic(topic) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_names(harness: Harness, topic: str, version: int) -> None:
    for name in ("", ".", "..", "a/b", "ä", "x" * 250):
        assert error(harness, new_topic(name), version) is ErrorCode.INVALID_TOPIC_EXCEPTION, name
    assert error(harness, new_topic("__cluster_metadata"), version) is ErrorCode.INVALID_REQUEST
    harness.create_topic(topic)
    assert error(harness, new_topic(topic), version) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert error(harness, new_topic(topic.replace("_", ".")), version) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_validation_alone_makes_nothing(harness: Harness, topic: str, version: int) -> None:
    good, bad = new_topic(topic, 2), new_topic(f"{topic}-bad", 0)
    answers = create(harness, version, good, bad, validate_only=True)
    assert answers[topic].error_code == 0
    assert answers[f"{topic}-bad"].error_code == ErrorCode.INVALID_PARTITIONS
    if version >= 5:
        assert (answers[topic].num_partitions, answers[topic].replication_factor) == (2, 1)
    assert harness.broker.metadata.topic(topic) is None
    assert create(harness, version, good)[topic].error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_of_one_request_stand_for_themselves(harness: Harness, topic: str, version: int) -> None:
    twice = f"{topic}-twice"
    answers = create(harness, version, new_topic(twice), new_topic(topic), new_topic("a b"), new_topic(twice))
    assert {name: answer.error_code for name, answer in answers.items()} == {
        twice: ErrorCode.INVALID_REQUEST,
        topic: 0,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert harness.broker.metadata.topic(twice) is None


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_who_does_not_wait_is_told_so_and_the_topic_comes(harness: Harness, topic: str, timeout_ms: int) -> None:
    (answer,) = create(harness, 7, new_topic(topic), timeout_ms=timeout_ms).values()
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    harness.until(lambda: harness.broker.replicas.get(topic, 0) is not None)


def test_no_topics(harness: Harness) -> None:
    assert create(harness, 7) == {}


def test_all_topics_of_a_request_are_made_though_its_client_leaves(harness: Harness, topic: str) -> None:
    names = {f"{topic}.{number}" for number in range(5)}
    wire = Wire(harness)
    wire.send(request_frame(CreateTopicsRequest(topics=[new_topic(name) for name in names], timeout_ms=30_000), 7))
    wire.close()
    harness.until(lambda: names <= {found.name for found in harness.broker.metadata.topics()})


@pytest.mark.slow
def test_a_thread_makes_the_folders_of_many_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system's journal may keep a caller waiting for longer than the loop may wait."""
    on_loop: list[str] = []

    def noted(method: Any) -> Any:
        def call(files: OsFiles, path: str, *more: Any, **options: Any) -> Any:
            if "/many-" in path and threading.current_thread() is threading.main_thread():
                on_loop.append(path)
            return method(files, path, *more, **options)

        return call

    for name in ("make_directory", "write_atomically", "create"):
        monkeypatch.setattr(OsFiles, name, noted(getattr(OsFiles, name)))
    with running(tmp_path) as harness:
        harness.create_topic("many-1", 100)
        assert on_loop == []
        harness.create_topic("many-2")
        assert on_loop, "one partition is not worth a thread"
        for partition in range(100):
            assert harness.produce("many-1", b"x", partition=partition).error_code == 0
    with running(tmp_path) as harness:
        for partition in range(100):
            assert [record.value for record in harness.records("many-1", partition=partition)] == [b"x"]
        assert harness.produce("many-2", b"y").base_offset == 0
