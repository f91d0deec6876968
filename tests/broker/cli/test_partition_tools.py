"""`gregor get-offsets`, `delete-records`, `leader-election` and `log-dirs` without a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gregor.broker.cli import delete_records, get_offsets, leader_election, log_dirs
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.partition_files import load_partitions
from gregor.broker.cli.wire import BrokerRefusal
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeLogDirsResponse

PLACES = [(topic, number) for topic in ("orders", "returns", "x") for number in range(6)]


@pytest.mark.parametrize(
    ("main", "arguments", "cause"),
    [
        (get_offsets.main, ["--time", "soon"], "'soon' is not a time"),
        (get_offsets.main, ["--time", "-7"], "'-7' is not a time"),
        (get_offsets.main, ["--partitions", "a"], "is not a list of partitions"),
        (get_offsets.main, ["--topic", "("], "not a regular expression"),
        (get_offsets.main, ["--topic", "a{99999999999}"], "not a regular expression"),
        (get_offsets.main, ["--topic-partitions", "t:a"], "does not select partitions"),
        (get_offsets.main, ["--topic-partitions", "t:" + "1" * 5000], "does not select partitions"),
        (get_offsets.main, ["--topic-partitions", "t", "--topic", "t"], "contradicts --topic and --partitions"),
        (delete_records.main, ["--bootstrap-server", "localhost:1"], "--offset-json-file"),
        (delete_records.main, ["--offset-json-file", "no-such-file"], "cannot read"),
        (leader_election.main, ["--topic", "t", "--partition", "0"], "--election-type"),
        (leader_election.main, ["--election-type", "odd", "--all-topic-partitions"], "'odd' is not one of"),
        (leader_election.main, ["--election-type", "unclean"], "exactly one"),
        (leader_election.main, ["--election-type", "unclean", "--topic", "t"], "need each other"),
        (leader_election.main, ["--election-type", "unclean", "--partition", "2147483648"], "is not in the range"),
        (leader_election.main, ["--election-type", "unclean", "--topic", "t", "--all-topic-partitions"], "exactly one"),
        (log_dirs.main, ["--topic-list", "t"], "Give --describe"),
        (log_dirs.main, ["--describe", "--broker-list", "x"], "is not a list of broker ids"),
    ],
)
def test_wrong_arguments_are_refused(
    main: Callable[[list[str]], int], arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert cause in capsys.readouterr().err


def matched(wanted: get_offsets.Filter) -> str:
    return " ".join(f"{topic}{number}" for topic, number in PLACES if wanted(topic, number))


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ("orders:0", "orders0"),
        ("orders:2-4", "orders2 orders3"),
        ("orders:4-", "orders4 orders5"),
        ("orders:-2,x:5", "orders0 orders1 x5"),
        (":5", "orders5 returns5 x5"),
        ("ret.*:0,ret.*:1", "returns0 returns1"),
        ("x", "x0 x1 x2 x3 x4 x5"),
        ("x:", "x0 x1 x2 x3 x4 x5"),
        ("order:0", ""),
    ],
)
def test_topic_partitions(rules: str, found: str) -> None:
    assert matched(get_offsets.rules_filter(rules)) == found


def test_topics_and_partitions() -> None:
    assert matched(get_offsets.topic_filter("orders,x", "1, 3")) == "orders1 orders3 x1 x3"
    assert matched(get_offsets.topic_filter(None, "0")) == "orders0 returns0 x0"
    assert get_offsets.parse_time("earliest-local") == get_offsets.parse_time("-4") == -4
    assert get_offsets.parse_time("1700000000000") == 1_700_000_000_000


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("nonsense", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"partitions": [{"topic": "t", "partition": 2147483648, "offset": 1}]}', "is not a partition; give"),
        ('{"partitions": [{"topic": "t", "partition": 1, "offset": 9223372036854775808}]}', "is not a partition; give"),
        ("[]", "must contain"),
        ('{"partitions": 1}', "must contain"),
        ('{"version": 2, "partitions": []}', "only version 1"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "is not a partition; give"),
        ('{"partitions": [{"topic": "t", "partition": true, "offset": 1}]}', "is not a partition"),
        ('{"partitions": [{"topic": 7, "partition": 0, "offset": 1}]}', "is not a partition"),
        ('{"partitions": ["t-0"]}', "is not a partition"),
        ('{{"partitions": [{t}, {t}]}}'.format(t='{"topic": "t", "partition": 0, "offset": 1}'), "t-0 twice"),
    ],
)
def test_files_that_name_no_partitions(tmp_path: Path, content: str, cause: str) -> None:
    file = tmp_path / "partitions.json"
    file.write_text(content)
    with pytest.raises(CommandError, match=cause):
        load_partitions(str(file), offsets=True)


def test_files_of_partitions(tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": [{"topic": "t", "partition": 1, "offset": -1}, {"topic": "u", "partition": 0}]}')
    with pytest.raises(CommandError):
        load_partitions(str(file), offsets=True)
    assert load_partitions(str(file), offsets=False) == {("t", 1): -1, ("u", 0): 0}


def test_results_of_elections_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    results = {
        ("t", 0): None,
        ("t", 1): BrokerRefusal(ErrorCode.ELECTION_NOT_NEEDED),
        ("u", 0): BrokerRefusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "it is down."),
    }
    with pytest.raises(CommandError, match=r"1 replica\(s\) could not be elected"):
        leader_election.report("PREFERRED", results)
    assert capsys.readouterr().out.splitlines() == [
        "Successfully completed leader election (PREFERRED) for partitions t-0",
        "Valid replica already elected for partitions t-1",
        "Error completing leader election (PREFERRED) for partition: u-0: it is down (PREFERRED_LEADER_NOT_AVAILABLE).",
    ]


def folders() -> dict[int, list[DescribeLogDirsResponse.DescribeLogDirsResult]]:
    part = DescribeLogDirsResponse.DescribeLogDirsPartition
    topics = [
        DescribeLogDirsResponse.DescribeLogDirsTopic(name="t", partitions=[part(partition_index=0, partition_size=70)]),
        DescribeLogDirsResponse.DescribeLogDirsTopic(
            name="u", partitions=[part(partition_index=3, is_future_key=True)]
        ),
    ]
    make = DescribeLogDirsResponse.DescribeLogDirsResult
    return {
        1: [
            make(log_dir="/a", topics=topics, total_bytes=1000, usable_bytes=10),
            make(log_dir="/b", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
        ]
    }


def test_folders_as_json() -> None:
    whole, broken = log_dirs.as_json(folders(), {"t"})["brokers"][0]["logDirs"]
    assert whole == {
        "partitions": [{"partition": "t-0", "size": 70, "offsetLag": 0, "isFuture": False}],
        "error": None,
        "logDir": "/a",
    }
    assert broken["error"] == "org.apache.kafka.common.errors.KafkaStorageException"
    assert len(json.dumps(log_dirs.as_json(folders(), set()))) > 100


def test_folders_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    log_dirs.draw(folders(), set())
    out = capsys.readouterr().out
    assert "KAFKA_STORAGE_ERROR" in out and "1 kB" in out and "future" in out


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (-1, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1_234_567, "1.23 MB"),
        (999_600, "1 MB"),
        (5 * 10**15, "5 PB"),
    ],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert log_dirs.size_text(size_bytes) == text
