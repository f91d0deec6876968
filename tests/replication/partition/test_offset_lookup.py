"""Offsets and epochs for ListOffsets, OffsetForLeaderEpoch and followers that truncate."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.partition.offset_lookup import (
    DEBUGGING,
    diverging_epoch,
    end_offset,
    hides_committed,
    truncation_offset,
)
from tests.replication.fakes import CountingLog
from tests.replication.replicas import NOW, code_of, leader_of


def test_latest_offset_is_withheld_while_it_would_go_backwards() -> None:
    partition = leader_of(CountingLog(log_end_offset=9, high_watermark=4), [0, 1], epoch=1)
    assert (end_offset(partition), hides_committed(partition)) == (4, True)
    assert end_offset(partition, replica_id=1) == end_offset(partition, replica_id=DEBUGGING) == 9
    partition.leadership.update_follower(1, 9, NOW)
    assert (end_offset(partition), hides_committed(partition)) == (9, False)


def test_diverging_readers_get_the_epoch_to_which_to_truncate() -> None:
    log = CountingLog(log_end_offset=10, high_watermark=10, epochs=[(1, 0), (3, 6)])
    partition = leader_of(log, [0], epoch=5)
    assert diverging_epoch(partition, -1, 10) is None
    assert diverging_epoch(partition, 1, 6) is None
    assert diverging_epoch(partition, 1, 7) == (1, 6)
    assert diverging_epoch(partition, 2, 7) == (1, 6)
    assert diverging_epoch(partition, 3, 10) is None
    for epoch, offset in ((0, 3), (6, 3)):
        with pytest.raises(KafkaError) as error:
            diverging_epoch(partition, epoch, offset)
        assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end_offset", "expected"),
    [
        (3, 8, 8),  # both have the epoch, the leader's ends earlier
        (3, 12, 10),  # ours ends earlier
        (2, 5, 6),  # not in our log: where our next older one ends
        (1, 4, 4),
        (0, 3, 3),  # older than all of ours
        (-1, -1, 7),  # the leader does not know it: the high watermark
    ],
)
def test_offset_to_which_a_follower_truncates(leader_epoch: int, leader_end_offset: int, expected: int) -> None:
    log: Any = CountingLog(log_end_offset=10, high_watermark=7, epochs=[(1, 0), (3, 6)])
    assert truncation_offset(log, leader_epoch, leader_end_offset) == expected
