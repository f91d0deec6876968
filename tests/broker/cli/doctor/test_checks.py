"""gregor.broker.cli.doctor.checks: from observations to findings."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.cli.doctor.checks import AHEAD_MS, Finding, Level, ObservedBroker, ObservedCluster, check
from gregor.broker.cli.reassignments import Reassignment
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeLogDirsResponse, MetadataResponse

GB = 10**9
NOW_MS = 1_700_000_000_000


def folder(
    usable: int = 50 * GB, total: int = 100 * GB, error: int = 0
) -> DescribeLogDirsResponse.DescribeLogDirsResult:
    return DescribeLogDirsResponse.DescribeLogDirsResult(
        log_dir="/data", usable_bytes=usable, total_bytes=total, error_code=error, topics=[]
    )


def broker(node_id: int, **changes: Any) -> ObservedBroker:
    made = ObservedBroker(
        node_id,
        f"kafka{node_id}",
        9092,
        [f"192.0.2.{node_id}"],
        answers_as=node_id,
        controller_id=1,
        cluster_id="abc",
        live=frozenset({1, 2, 3}),
        log_dirs=[folder()],
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def partition(index: int, leader: int, isr: list[int]) -> MetadataResponse.MetadataResponsePartition:
    return MetadataResponse.MetadataResponsePartition(
        partition_index=index, leader_id=leader, replica_nodes=[1, 2, 3], isr_nodes=isr
    )


def seen(*brokers: ObservedBroker, partitions: list[Any] | None = None, **changes: Any) -> ObservedCluster:
    known = brokers or (broker(1), broker(2), broker(3))
    topic = MetadataResponse.MetadataResponseTopic(
        name="t", partitions=[partition(0, 1, [1, 2, 3])] if partitions is None else partitions
    )
    metadata = MetadataResponse(
        cluster_id="abc",
        controller_id=1,
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=one.node_id, host=one.host, port=one.port) for one in known
        ],
        topics=[topic],
    )
    made = ObservedCluster(
        "kafka1:9092", "192.0.2.1", metadata, list(known), newest_ms={"t-0": NOW_MS - 5}, now_ms=NOW_MS
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def not_ok(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def test_a_healthy_cluster_has_nothing_to_change() -> None:
    findings = check(seen())
    assert not_ok(findings) == []
    assert [finding.remedy for finding in findings if finding.remedy] == []
    assert any("cluster abc: 3 brokers, controller 1" in finding.text for finding in findings)


@pytest.mark.parametrize(
    ("changes", "text", "remedy"),
    [
        ({"addresses": ["127.0.0.1", "::1"]}, "clients connect to themselves", "advertised.listeners of broker 2"),
        ({"addresses": []}, "a name that this host cannot resolve", "/etc/hosts"),
        ({"addresses": ["0.0.0.0"]}, "an address that no client can connect to", "advertised.listeners"),
        ({"trouble": "connection refused"}, "does not answer there: connection refused", "firewall"),
        ({"answers_as": -1}, "another broker answers there", "its own address"),
        ({"host": "kafka3"}, "as broker 3 is", "its own address"),
        ({"cluster_id": "xyz"}, "belongs to cluster xyz", "zookeeper.connect"),
        ({"controller_id": 3}, "the brokers have different metadata", "after an election"),
        ({"log_dirs": [folder(usable=1 * GB)]}, "1 GB of 100 GB free (1%)", "retention.bytes"),
        ({"log_dirs": [folder(error=ErrorCode.KAFKA_STORAGE_ERROR)]}, "/data: KAFKA_STORAGE_ERROR", "repair it"),
    ],
)
def test_problem_of_one_broker_is_reported(changes: dict[str, Any], text: str, remedy: str) -> None:
    found = [one for one in not_ok(check(seen(broker(1), broker(2, **changes), broker(3)))) if text in one.text]
    assert found and all(one.level is Level.WRONG and remedy in one.remedy for one in found)


def test_problem_that_is_only_a_note() -> None:
    (finding,) = not_ok(check(seen(broker(1, log_dirs=[folder(usable=10 * GB)]))))
    assert (finding.level, "10%" in finding.text) == (Level.NOTE, True)
    (finding,) = not_ok(check(seen(broker(1, addresses=["127.0.0.1"]), peer="127.0.0.1")))
    assert (finding.level, "only clients on this machine" in finding.text) == (Level.NOTE, True)


def test_a_broker_that_does_not_tell_how_full_its_disk_is_is_no_concern() -> None:
    assert not_ok(check(seen(broker(1, log_dirs=[folder(-1, -1)])))) == []


def test_no_controller() -> None:
    headless = seen()
    headless.metadata.controller_id = -1
    (finding,) = not_ok(check(headless))
    assert "no controller" in finding.text


def test_partitions() -> None:
    partitions = [partition(0, -1, [3]), partition(1, 1, [1, 2]), partition(2, 1, [1]), partition(3, 1, [1, 2, 3])]
    findings = not_ok(check(seen(partitions=partitions, min_isr={"t": 2})))
    assert [(one.level, one.text.partition(")")[0]) for one in findings] == [
        (Level.WRONG, "1 partition (t-0"),
        (Level.WRONG, "1 partition (t-2"),
        (Level.WRONG, "2 partitions (t-1, t-2"),
    ]
    assert "acks=all are refused" in findings[1].text


def test_many_partitions_are_counted_not_listed() -> None:
    (finding,) = not_ok(check(seen(partitions=[partition(index, 1, [1]) for index in range(40)])))
    assert finding.text.startswith("40 partitions (t-0, t-1, t-2, t-3, t-4 and 35 more)")


@pytest.mark.parametrize(("ahead_ms", "level"), [(AHEAD_MS, Level.OK), (AHEAD_MS + 1, Level.WRONG)])
def test_records_from_the_future(ahead_ms: int, level: Level) -> None:
    findings = check(seen(newest_ms={"t-0": NOW_MS + ahead_ms, "t-1": -1}))
    (finding,) = [one for one in findings if "in the future" in one.text]
    assert finding.level is level


def test_without_records_there_is_no_finding_about_the_clock() -> None:
    assert not any("future" in one.text for one in check(seen(newest_ms={"t-0": -1})))


def test_replicas_that_a_reassignment_is_adding_are_not_out_of_sync() -> None:
    partitions = [partition(0, 1, [1, 2]), partition(1, 1, [1, 2])]
    moving = {("t", 0): Reassignment([1, 2, 3], [3], []), ("t", 1): Reassignment([1, 2, 4], [4], [])}
    (found,) = not_ok(check(seen(partitions=partitions, reassignments=moving)))
    assert found.text == "1 partition (t-1) with replicas that are not in sync", "the other reassignment has ended"
