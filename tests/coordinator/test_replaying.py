"""The load of a log passes over values that later ones supersede, and ends in the state that all records lead to."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.coordinator import replaying
from gregor.coordinator.group.records import decode_record, encode_record, is_independent
from gregor.coordinator.replaying import LoadedRecords, replay
from gregor.coordinator.result import Record
from gregor.protocol.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from gregor.protocol.records.batch import build_batch
from gregor.protocol.turns import run_all
from tests.coordinator.machinery import START_MS
from tests.coordinator.runtime_bench import Bench, ListShard, decode
from tests.fuzz.group_targets import Groups

PLAIN, OTHER, COMMIT, ABORT = "plain", "in a transaction", "commit", "abort"
Step = tuple[str, bytes, bytes | None]


def batch(offset: int, step: Step) -> bytes:
    kind, key, value = step
    header: dict[str, Any] = {"base_offset": offset, "timestamp_ms": START_MS}
    if kind != PLAIN:
        header.update(producer_id=9, producer_epoch=0, transactional=True, control=kind in (COMMIT, ABORT))
    return bytes(build_batch([(key, value)], **header))


def batches(*steps: Step) -> bytes:
    """One batch for each step: its kind, key and value."""
    return b"".join(batch(offset, step) for offset, step in enumerate(steps))


def marker(kind: str) -> Step:
    return kind, struct.pack(">hh", 0, int(kind == COMMIT)), struct.pack(">hi", 0, 0)


def independent(key: bytes) -> bool:
    return key != b"dependent"


def a_list() -> ListShard:
    return ListShard(SimpleNamespace(timers=None), [])  # type: ignore[arg-type]


def loaded(data: bytes) -> tuple[list[tuple[int, str, int]], int]:
    shard = a_list()
    return shard.replayed, run_all(replay(shard, decode, independent, data, 0, "a log"))


def test_of_the_values_of_a_key_the_last_one_is_replayed_at_its_offset() -> None:
    data = batches((PLAIN, b"a", b"1"), (PLAIN, b"b", b"1"), (PLAIN, b"a", b"2"), (PLAIN, b"c", b"1"))
    shard = a_list()
    decoded = []

    def remembered(key: bytes | None, value: bytes | None) -> Record | None:
        decoded.append((key, value))
        return decode(key, value)

    assert run_all(replay(shard, remembered, independent, data, 0, "a log")) == 4
    assert shard.replayed == [(1, "b", -1), (2, "a", -1), (3, "c", -1)]
    assert decoded == [(b"b", b"1"), (b"a", b"2"), (b"c", b"1")]


def test_records_that_depend_on_others_all_count() -> None:
    data = batches((PLAIN, b"dependent", b"1"), (PLAIN, b"a", b"1"), (PLAIN, b"dependent", b"2"))
    assert loaded(data)[0] == [(0, "dependent", -1), (1, "a", -1), (2, "dependent", -1)]


def test_tombstones_and_records_of_transactions_always_count() -> None:
    data = batches(
        (PLAIN, b"a", b"1"),
        (OTHER, b"a", b"2"),
        (PLAIN, b"a", None),
        (OTHER, b"a", b"3"),
        marker(ABORT),
        (PLAIN, b"a", b"4"),
        (PLAIN, b"a", None),
    )
    expected = [(1, "a", 9), (2, "a", -1), (3, "a", 9), (-1, "abort", 9), (6, "a", -1)]
    assert loaded(data) == (expected, 7)


def test_a_value_is_not_superseded_by_one_of_a_transaction_that_may_be_aborted() -> None:
    data = batches((PLAIN, b"a", b"1"), (OTHER, b"a", b"2"), marker(ABORT))
    assert loaded(data)[0] == [(0, "a", -1), (1, "a", 9), (-1, "abort", 9)]


def test_only_records_that_count_are_reported_if_they_cannot_be_decoded(caplog: pytest.LogCaptureFixture) -> None:
    key = encode_record(Record(OffsetCommitKey(group="g", topic="t", partition=0), None))[0]
    data = batches((PLAIN, key, b"?"), (PLAIN, key, None), (PLAIN, key, b"?"))
    run_all(replay(Groups().shard(), decode_record, is_independent, data, 0, "a log"))
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("a log: the record at offset 2 cannot")


def test_a_log_above_the_limit_is_replayed_up_to_there_and_then_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "MAX_KEPT_BYTES", 500)
    with Bench() as bench:  # whose loads read 1000 bytes at a time
        for offset in range(100):
            bench.log.add_batch(0, batch(offset, (PLAIN, b"%d" % (offset % 3), b"v" * 20)))
        offsets = [offset for offset, _, _ in bench.load().replayed]
        assert offsets == sorted(set(offsets))
        assert offsets[-3:] == [97, 98, 99]
        assert 3 < len(offsets) < 100


def test_values_that_were_replayed_are_not_superseded_by_later_ones() -> None:
    shard = a_list()
    records = LoadedRecords(independent)
    assert run_all(records.read(batches((PLAIN, b"a", b"1")), 0)) == 1
    run_all(records.replay(shard, decode, "a log"))
    assert records.is_full
    run_all(records.read(batches((PLAIN, b"a", b"2"), (PLAIN, b"a", b"3")), 0))
    run_all(records.replay(shard, decode, "a log"))
    assert [key for _, key, _ in shard.replayed] == ["a", "a", "a"]


def offset_record(group: str, partition: int, offset: int | None) -> Record:
    value = None if offset is None else OffsetCommitValue(offset=offset, metadata="", commit_timestamp=START_MS)
    return Record(OffsetCommitKey(group=group, topic="t", partition=partition), value)


def generation_record(group: str, generation: int | None) -> Record:
    value = None if generation is None else GroupMetadataValue(protocol_type="consumer", generation=generation)
    return Record(GroupMetadataKey(group=group), value)


_GROUPS = st.sampled_from(["g", "h"])
_NUMBERS = st.one_of(st.none(), st.integers(0, 9))
_STEPS = st.one_of(
    st.tuples(st.sampled_from([PLAIN, OTHER]), st.builds(offset_record, _GROUPS, st.integers(0, 1), _NUMBERS)),
    st.tuples(st.just(PLAIN), st.builds(generation_record, _GROUPS, _NUMBERS)),
    st.tuples(st.sampled_from([COMMIT, ABORT]), st.none()),
)


@given(st.lists(_STEPS, max_size=25))
def test_the_state_is_that_of_all_records(steps: Sequence[tuple[str, Record | None]]) -> None:
    encoded: list[Step] = []
    for kind, record in steps:
        encoded.append(marker(kind) if record is None else (kind, *encode_record(record)))
    at_once, one_by_one = Groups().shard(), Groups().shard()
    run_all(replay(at_once, decode_record, is_independent, batches(*encoded), 0, "a log"))
    for offset, step in enumerate(encoded):
        run_all(replay(one_by_one, decode_record, is_independent, batch(offset, step), offset, "a log"))

    def state(shard: Any) -> Any:
        """Without groups of which nothing is left: the log does not have these either once it is compacted."""
        return {
            group_id: found
            for group_id, group in shard.groups.items()
            if any(found := (group.metadata, {topic: of for topic, of in group.offsets.items() if of}, group.pending))
        }

    assert at_once.transactions == one_by_one.transactions
    assert state(at_once) == state(one_by_one)
