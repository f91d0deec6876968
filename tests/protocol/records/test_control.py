"""Markers as Kafka writes them, and control records that are damaged or of other types."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.records.batch import CorruptBatch, Record, RecordBatch, build_batch
from gregor.protocol.records.control import (
    EndMarker,
    EndTransaction,
    control_type,
    end_marker,
    parse_end_marker,
    read_end_marker,
)


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.booleans(),
    st.integers(0, 2**62),
)
def test_a_marker_is_the_batch_that_the_general_builder_makes(
    producer_id: int, epoch: int, coordinator_epoch: int, commit: bool, timestamp_ms: int
) -> None:
    marker = end_marker(producer_id, epoch, coordinator_epoch, commit, timestamp_ms)
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, coordinator_epoch)
    assert marker == build_batch(
        [Record(0, timestamp_ms, key, value, [])],
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=True,
        control=True,
    )
    assert read_end_marker(RecordBatch(marker)) == EndMarker(commit, coordinator_epoch)
    assert marker == EndTransaction(producer_id, epoch, coordinator_epoch, commit).batch(timestamp_ms)


def test_a_marker_has_kafkas_bytes() -> None:
    """Kafka's MemoryRecords.withEndTransactionMarker: one record, no sequence, both bits."""
    batch = RecordBatch(end_marker(7, 3, 5, False, 1000))
    assert (batch.size_bytes, batch.attributes, batch.base_sequence, batch.record_count) == (78, 0x30, -1, 1)
    assert (batch.base_offset, batch.last_offset_delta, batch.leader_epoch) == (0, 0, -1)
    assert batch.crc_ok()


def control(key: bytes | None, value: bytes | None) -> Record:
    return Record(4, 0, key, value, [])


def test_other_control_records_are_no_markers() -> None:
    assert parse_end_marker(control(b"\0\0\0\2", b"")) is None
    assert control_type(control(b"\0\0\0\2", None)) == 2


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (None, b"\0\0\0\0\0\0", "at offset 4 has no type"),
        (b"\0\0\0", b"\0\0\0\0\0\0", "at offset 4 has no type"),
        (b"\0\0\0\0", b"\0\0\0\0\0", "at offset 4 has no coordinator epoch"),
        (b"\0\0\0\1", None, "at offset 4 has no coordinator epoch"),
    ],
)
def test_damaged_markers_are_refused(key: bytes | None, value: bytes | None, problem: str) -> None:
    with pytest.raises(CorruptBatch, match=problem):
        parse_end_marker(control(key, value))


def test_later_versions_are_read_as_far_as_they_are_known() -> None:
    assert parse_end_marker(control(b"\0\1\0\1more", b"\0\1\0\0\0\7more")) == EndMarker(
        commit=True, coordinator_epoch=7
    )


def test_a_marker_whose_record_was_removed_says_nothing() -> None:
    batch = RecordBatch(build_batch([(b"\0\0\0\1", bytes(6))], producer_id=7, transactional=True, control=True))
    header = bytearray(batch.memory()[:61])
    header[8:12] = (49).to_bytes(4)
    header[57:61] = bytes(4)
    assert read_end_marker(RecordBatch(header)) is None
