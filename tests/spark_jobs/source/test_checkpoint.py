"""gregor.spark_jobs.source.checkpoint: the offsets of a checkpoint, and the command that prints them."""

from __future__ import annotations

import pathlib

import pytest

from gregor.protocol.topic_partition import TopicPartition
from gregor.spark_jobs import cli
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.source.checkpoint import (
    LocalFiles,
    commit_last_batch,
    commit_last_batches,
    last_position,
    positions_of,
    starting_offsets,
)
from tests.spark_jobs.client.test_offsets import committed
from tests.spark_jobs.topics import Topics

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'


def write(folder: pathlib.Path, batch: int, *positions: str, completed: bool = True, version: str = "v1") -> None:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(batch)).write_text("\n".join([version, METADATA, *positions]))
    (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    if completed:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_end_of_the_last_completed_batch(tmp_path: pathlib.Path) -> None:
    write(tmp_path, 9, '{"t":{"0":1}}')
    write(tmp_path, 10, '{"t":{"1":7,"0":23}}')
    write(tmp_path, 11, '{"t":{"0":30}}', completed=False)
    assert starting_offsets(str(tmp_path)) == starting_offsets(tmp_path.as_uri()) == '{"t":{"0":23,"1":7}}'


def test_a_source_of_several_and_ids_of_topics(tmp_path: pathlib.Path) -> None:
    write(tmp_path, 0, "-", '{"#topicIds": {"t": "AAECAwQFBgcICQoLDA0ODw"}, "t": {"0": 3}}')
    assert starting_offsets(str(tmp_path), 1) == '{"t":{"0":3}}'
    assert last_position(str(tmp_path), 1).id_of("t") == bytes(range(16))
    with pytest.raises(JobError, match="no offset for the source 0"):
        starting_offsets(str(tmp_path))
    with pytest.raises(JobError, match="the offsets of 2 sources"):
        starting_offsets(str(tmp_path), 2)


def test_the_positions_of_a_batch_leave_out_sources_of_other_kinds() -> None:
    lines = ["-", '{"t": {"0": 3}}', "1234", '{"u": {"1": 4}}']
    assert [position.to_json() for position in positions_of(lines)] == [{"t": {"0": 3}}, {"u": {"1": 4}}]


def test_folders_that_are_no_checkpoint(tmp_path: pathlib.Path) -> None:
    with pytest.raises(JobError, match="no folder named offsets"):
        starting_offsets(str(tmp_path))
    with pytest.raises(JobError, match="is not on this machine"):
        starting_offsets("hdfs://h/checkpoint")
    write(tmp_path, 0, '{"t":{"0":3}}', completed=False)
    with pytest.raises(JobError, match="no completed batch.*: start the other query where this one was to start"):
        starting_offsets(str(tmp_path))
    write(tmp_path, 0, "-")
    with pytest.raises(JobError, match="no offset for the source 0, which has completed no batch, or reads no topics"):
        starting_offsets(str(tmp_path))
    write(tmp_path, 0, "1234")
    with pytest.raises(JobError, match="offset 1234, which is not one of topics; give the number of another source"):
        starting_offsets(str(tmp_path))
    write(tmp_path, 0, '{"t":{"0":3}}', version="v2")
    with pytest.raises(JobError, match="format 'v2'; only v1 is known, .*offsetLog.formatVersion=1 from its start"):
        starting_offsets(str(tmp_path))


def test_the_command(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 0, '{"t":{"0":3}}', '{"u":{"0":4}}')
    assert cli.main(["offsets", str(tmp_path)]) == 0
    assert cli.main(["offsets", str(tmp_path), "--source", "1"]) == 0
    assert capsys.readouterr().out == '{"t":{"0":3}}\n{"u":{"0":4}}\n'
    assert cli.main(["offsets", str(tmp_path / "none")]) == 1
    assert "no folder named offsets" in capsys.readouterr().err
    assert cli.main(["offsets"]) == 2
    assert cli.main(["offsets", "--help"]) == 0


@pytest.mark.slow
def test_the_last_batch_is_committed_when_the_query_has_ended(topics: Topics, tmp_path: pathlib.Path) -> None:
    topic = topics.create()
    topics.produce(topic, ["a"] * 4)
    write(tmp_path, 0, f'{{"{topic}":{{"0":2,"1":1}}}}')
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic}
    with pytest.raises(JobError, match="name no group"):
        commit_last_batch(str(tmp_path), options)
    commit_last_batch(str(tmp_path), {**options, "kafka.group.id": f"of-{topic}"})
    assert committed(topics.bootstrap, f"of-{topic}", TopicPartition(topic, 0)) == 2


@pytest.mark.slow
def test_the_last_batch_of_every_source_is_committed(topics: Topics, tmp_path: pathlib.Path) -> None:
    left, right = topics.create(), topics.create()
    topics.produce(left, ["a"] * 4)
    topics.produce(right, ["a"] * 4)
    write(tmp_path, 0, f'{{"{left}":{{"0":2}}}}', "-", f'{{"{right}":{{"1":1}}}}')
    write(tmp_path, 1, f'{{"{left}":{{"0":1}}}}', "-", "-", completed=False)
    options = {"kafka.bootstrap.servers": topics.bootstrap}
    assert commit_last_batches(LocalFiles(str(tmp_path)), options) == []
    [group] = commit_last_batches(LocalFiles(str(tmp_path)), options | {"kafka.group.id": f"of-{left}"})
    assert committed(topics.bootstrap, group, TopicPartition(left, 0)) == 2
    assert committed(topics.bootstrap, group, TopicPartition(right, 1)) == 1
    groups = commit_last_batches(LocalFiles(str(tmp_path)), options | {"groupIdPrefix": "lag"})
    assert len(set(groups)) == 2 and all(name.startswith("lag-") for name in groups)
    assert committed(topics.bootstrap, groups[1], TopicPartition(right, 1)) == 1
