"""Whether the files of a leader are on this host, and may be read: with a leader that answers as it is scripted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.records.batch import build_batch
from gregor.spark_jobs.arrow import reader
from gregor.spark_jobs.arrow.local import LocalLog, find_local_log, has_authorizer
from gregor.spark_jobs.arrow.plan import DataLoss, Mode, PartitionRange, ReadPlan
from gregor.spark_jobs.arrow.segments import Unreadable
from gregor.spark_jobs.client.cluster import Cluster
from gregor.storage.fs.files import OsFiles
from tests.spark_jobs.arrow.fake_leader import CLUSTER_ID, SETTINGS, TOPIC_ID, FakeClock, FakeLeader
from tests.spark_jobs.arrow.twin import batch_of
from tests.storage.logs import open_log

OWN = f"cluster.id={CLUSTER_ID}\nbroker.id=1\n"
NOW_MS = 1_000_000


@pytest.fixture
def leader(tmp_path: Path) -> FakeLeader:
    """Broker 1, whose log has the keys of files on the disk, and others in what it answers to a fetch."""
    log = open_log(OsFiles(), str(tmp_path / "t-0"), now_ms=NOW_MS)
    log.append_as_leader(build_batch([(b"of-files", b"v")] * 3), 5, NOW_MS)
    log.close(clean=True)
    (tmp_path / "meta.properties").write_text(OWN)
    found = FakeLeader(batch_of(0, 3))
    found.log_dir = str(tmp_path)
    return found


def local_log(leader: FakeLeader) -> LocalLog:
    with Cluster(SETTINGS, FakeClock(), leader.connect) as cluster:
        return find_local_log(cluster, "t", 0)


def test_the_folder_of_the_leader_is_found(leader: FakeLeader, tmp_path: Path) -> None:
    assert local_log(leader) == LocalLog(str(tmp_path / "t-0"), 1, 5, TOPIC_ID)
    (tmp_path / "meta.properties").write_text(f"cluster.id={CLUSTER_ID}\nnode.id=1\nbroker.id=7\n")
    assert local_log(leader).leader == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"cluster.id={CLUSTER_ID}\nbroker.id=2\n", f"is of broker 2 of the cluster {CLUSTER_ID}, not of broker 1 of"),
        ("cluster.id=another\nbroker.id=1\n", f"of broker 1 of the cluster another, not of broker 1 of {CLUSTER_ID}"),
        ("version=0\n", "is of broker None of the cluster None"),
        ("\\uX", "cannot be read"),
        (None, "meta.properties cannot be read: .* No such file"),
    ],
)
def test_a_folder_of_another_broker_is_not_read(
    leader: FakeLeader, tmp_path: Path, text: str | None, reason: str
) -> None:
    (tmp_path / "meta.properties").unlink()
    if text is not None:
        (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(Unreadable, match=reason):
        local_log(leader)


def test_a_folder_that_is_on_another_host_is_not_read(leader: FakeLeader, tmp_path: Path) -> None:
    leader.log_dir = str(tmp_path / "elsewhere")
    with pytest.raises(
        Unreadable, match="broker 1, the leader of t-0, is on another host: .*/elsewhere/t-0 is not here"
    ):
        local_log(leader)
    leader.log_dir = None
    with pytest.raises(Unreadable, match="broker 1 names no data folder of t-0"):
        local_log(leader)


ANSWERS = [
    (ErrorCode.SECURITY_DISABLED, False),
    (ErrorCode.NONE, True),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True),
]
"""The error of DescribeAcls, and whether the broker has an authorizer."""


@pytest.mark.parametrize(("code", "expected"), ANSWERS)
def test_only_a_broker_without_an_authorizer_has_no_security(leader: FakeLeader, code: int, expected: bool) -> None:
    leader.acls_error = code
    with Cluster(SETTINGS, FakeClock(), leader.connect) as cluster:
        cluster.addresses()
        assert has_authorizer(cluster, 1) is expected


@pytest.fixture
def connected(leader: FakeLeader, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reads of a plan connect to the scripted leader."""
    monkeypatch.setattr(reader, "Cluster", partial(Cluster, clock=FakeClock(), connect=leader.connect))
    yield
    reader.close_idle()


@pytest.mark.parametrize(
    ("mode", "code", "of_files"),
    [
        ("auto", ErrorCode.SECURITY_DISABLED, True),
        ("auto", ErrorCode.NONE, False),
        ("auto", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False),
        ("files", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True),
        ("wire", ErrorCode.SECURITY_DISABLED, False),
    ],
)
def test_with_an_authorizer_files_are_read_only_by_the_mode_that_names_them(
    leader: FakeLeader, connected: None, mode: Mode, code: int, of_files: bool
) -> None:
    leader.acls_error = code
    plan = ReadPlan(SETTINGS, PartitionRange("t", 0, 0, 3, TOPIC_ID), mode)
    keys: list[Any] = [key.as_buffer().to_pybytes() for rows in reader.read(plan) for key in rows["key"]]
    assert keys == ([b"of-files"] * 3 if of_files else [b"k0", b"k1", b"k2"])
    assert bool(leader.fetched) is not of_files


@pytest.mark.parametrize("mode", ["auto", "files", "wire"])
def test_a_topic_made_again_is_data_loss_or_skipped_in_each_mode(
    leader: FakeLeader, connected: None, mode: Mode
) -> None:
    plan = ReadPlan(SETTINGS, PartitionRange("t", 0, 0, 3, bytes(15) + b"x"), mode)
    with pytest.raises(DataLoss, match="the topic was deleted and made again"):
        list(reader.read(plan))
    assert list(reader.read(replace(plan, fail_on_data_loss=False))) == []
    assert not leader.fetched
