"""Topics as Arrow without Spark, from a running broker and from the folder of a stopped one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gregor.spark_jobs.arrow.plan import Filters
from gregor.spark_jobs.arrow.reader import close_idle
from gregor.spark_jobs.arrow.schema import schema
from gregor.spark_jobs.arrow.topics import read_folder, read_topic
from gregor.spark_jobs.errors import JobError
from gregor.storage.fs.folder_lock import FolderLock
from tests.spark_jobs.arrow.stopped_broker import folder_of_stopped_broker
from tests.spark_jobs.topics import Topics


@pytest.fixture(autouse=True)
def connections_are_closed() -> Any:
    yield
    close_idle()


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    name = topics.create(2)
    topics.produce(name, [b"value %d" % number for number in range(200)], key="k", timestamp_ms=5000)
    return name


@pytest.mark.parametrize("mode", ["auto", "wire", "files"])
def test_whole_topic_is_a_table(topics: Topics, topic: str, mode: Any) -> None:
    table = read_topic(topics.bootstrap, topic, mode=mode).read_all()
    assert table.schema == schema(False)
    assert sorted(table["value"].to_pylist()) == sorted(b"value %d" % number for number in range(200))
    assert table["offset"].to_pylist() == [*range(100), *range(100)]
    assert table["partition"].to_pylist() == [0] * 100 + [1] * 100


def test_a_part_of_a_topic(topics: Topics, topic: str) -> None:
    part = read_topic(
        topics.bootstrap, topic, partitions=[1], start_offsets={1: 10}, end_offsets={1: 50}, columns=["offset"],
        filters=Filters(min_offset=20, max_offset=29), include_headers=True,
    ).read_all()  # fmt: skip
    assert part.to_pydict() == {"offset": list(range(20, 30))}
    assert read_topic(topics.bootstrap, topic, filters=Filters(min_timestamp_ms=5001)).read_all().num_rows == 0


def test_pandas_takes_it(topics: Topics, topic: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = read_topic(topics.bootstrap, topic).read_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 200


def test_polars_takes_it(topics: Topics, topic: str) -> None:
    polars = pytest.importorskip("polars")
    assert polars.from_arrow(read_topic(topics.bootstrap, topic).read_all()).height == 200


def test_duckdb_takes_it(topics: Topics, topic: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as database:
        database.register("rows", read_topic(topics.bootstrap, topic))
        assert database.sql("SELECT count(*), min(key) FROM rows").fetchall() == [(200, b"k")]


def test_what_cannot_be_read_is_refused_with_the_reason(topics: Topics, topic: str) -> None:
    for text, arguments in (
        ("the cluster has no partition 7 of the topic", {"partitions": [0, 7]}),
        ("there is no column 'kee': the columns are key, value", {"columns": ["kee"]}),
        ("mode='fast' is none of auto, wire, files", {"mode": "fast"}),
        ("the nearest name is kafka.fetch.min.bytes", {"options": {"kafka.fetch.min.byte": "1"}}),
    ):
        with pytest.raises(JobError, match=text):
            read_topic(topics.bootstrap, topic, **arguments)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of_stopped_broker(tmp_path)


def keys_in(reader: pa.RecordBatchReader) -> bytes:
    return b"".join(reader.read_all()["key"].to_pylist())


def test_folder_of_a_stopped_broker_is_read_to_what_it_noted_as_committed(folder: Path) -> None:
    assert keys_in(read_folder(str(folder), "orders")) == b"abcccde"
    (folder / "replication-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    assert keys_in(read_folder(str(folder), "orders")) == b"abcccd"
    (folder / "replication-offset-checkpoint").unlink()
    assert keys_in(read_folder(str(folder), "orders")) == b"abcccde"
    (folder / "log-start-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    assert keys_in(read_folder(str(folder), "orders")) == b"bcccde"


def test_aborted_and_open_transactions_of_a_stopped_broker_are_left_out(folder: Path) -> None:
    assert keys_in(read_folder(str(folder), "orders", read_committed=True)) == b"abd"


def test_torn_tail_of_a_crash_is_no_end_of_the_log(folder: Path) -> None:
    (folder / "replication-offset-checkpoint").unlink()
    path = max(path for path in (folder / "orders-0").glob("*.log") if path.stat().st_size)
    whole = path.read_bytes()
    for cut in (1, 20, 70):
        path.write_bytes(whole[:-cut])
        assert keys_in(read_folder(str(folder), "orders")) == b"abcccd"
    path.write_bytes(whole[:-1] + b"x")
    assert keys_in(read_folder(str(folder), "orders")) == b"abcccd"


def test_folder_that_a_broker_uses_is_refused(folder: Path) -> None:
    lock = FolderLock(str(folder))
    with pytest.raises(JobError, match="a broker uses the data folder"):
        read_folder(str(folder), "orders")
    lock.release()
    reader = read_folder(str(folder), "orders")
    lock = FolderLock(str(folder))
    with pytest.raises(JobError, match="a broker uses the data folder"):
        reader.read_all()
    lock.release()


def test_missing_folders_topics_and_damaged_checkpoints_are_named(folder: Path) -> None:
    with pytest.raises(JobError, match="has no partition of the topic nothing"):
        read_folder(str(folder), "nothing")
    with pytest.raises(JobError, match="has no partition 1, 2 of the topic orders"):
        read_folder(str(folder), "orders", partitions=[0, 1, 2])
    with pytest.raises(JobError, match=r"/none cannot be read: No such file"):
        read_folder(str(folder / "none"), "orders")
    (folder / "replication-offset-checkpoint").write_text("0\n2\norders 0 8\n")
    with pytest.raises(JobError, match="is malformed: version 0 with 2 entries, of which 1 are there"):
        read_folder(str(folder), "orders")
