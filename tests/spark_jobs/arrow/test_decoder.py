"""Record batches to Arrow rows, held against a slow obvious twin."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batch import LOG_APPEND_TIME, CorruptBatch, Record, build_batch, seal_batch
from gregor.protocol.records.compression import compress
from gregor.protocol.records.message_sets import append_message
from gregor.spark_jobs.arrow.decoder import Decoder
from gregor.spark_jobs.arrow.plan import CorruptRecords, Filters
from gregor.spark_jobs.arrow.rows import RowBuilder
from gregor.spark_jobs.arrow.schema import schema
from tests.spark_jobs.arrow.twin import batch_of, decoded, marker, rows_of

sometimes_null = st.none() | st.binary(max_size=20)
header = st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), sometimes_null)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A log: batches of all kinds with gaps between them."""
    out, offset = b"", draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 5))):
        records = []
        for _ in range(draw(st.integers(1, 6))):
            value = draw(sometimes_null | st.integers(60, 20_000).map(bytes))
            timestamp = draw(st.integers(-1, 2**42))
            records.append(Record(offset, timestamp, draw(sometimes_null), value, draw(st.lists(header, max_size=3))))
            offset += draw(st.integers(1, 300))
        kind = draw(st.integers(0, 1))
        time = {"timestamp_type": LOG_APPEND_TIME, "timestamp_ms": 5000} if kind else {}
        out += build_batch(records, compression=draw(st.integers(0, 4)), **time)
        offset += draw(st.integers(0, 3))
    return out


@settings(max_examples=25, deadline=None)
@given(batches(), st.data())
def test_rows_are_those_of_the_twin(data: bytes, draw: st.DataObject) -> None:
    all_rows = rows_of(data)
    assert decoded(data) == all_rows
    offsets = st.sampled_from([row["offset"] + more for row in all_rows for more in (0, 1)])
    start, end = sorted((draw.draw(offsets), draw.draw(offsets)))
    assert decoded(data, start, end) == rows_of(data, start, end)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(
    "sizes", [(1,), (10, 1, 500), (3,) * 200], ids=["one record", "sizes that vary", "many batches"]
)
def test_many_batches_of_every_codec(codec: int, sizes: tuple[int, ...]) -> None:
    data, offset = b"", 0
    for size in sizes:
        data += batch_of(offset, size, 9000 if offset % 7 == 5 else 40, compression=codec)
        offset += size
    assert decoded(data) == rows_of(data)


def test_cut_data_gives_the_whole_batches_before_the_cut() -> None:
    data = batch_of(0, 2, 5) + batch_of(2, 1, 5) + batch_of(3, 1, 5)
    ends = [len(batch_of(0, 2, 5)), len(batch_of(0, 2, 5) + batch_of(2, 1, 5)), len(data)]
    for cut in range(len(data) + 1):
        whole = max([0, *(end for end in ends if end <= cut)])
        assert decoded(data[:cut]) == rows_of(data[:whole])


def test_flipped_bytes_are_corrupt_records_or_change_what_no_checksum_covers() -> None:
    data = bytearray(batch_of(0, 3) + batch_of(3, 4))
    for position in range(len(data)):
        for bit in (0, 7):
            data[position] ^= 1 << bit
            try:
                rows = decoded(bytes(data))
                assert len(rows) in (0, 3, 4, 7)
            except CorruptRecords as error:
                assert "partition t-3: the batch at offset" in str(error)
            data[position] ^= 1 << bit


@pytest.mark.parametrize("codec", [0, 3])
def test_malformed_records_below_a_right_checksum_are_corrupt_where_the_twin_says_so(codec: int) -> None:
    """The checksum is right, since it is that of what a broken producer has sent."""
    source = random.Random(codec)
    headers = [("name", b"value"), ("", None)]
    records = [Record(n, n, b"key", bytes(n % 100), headers * (n % 3)) for n in range(5, 40)]
    body = bytes(build_batch(records)[61:])
    agreed = 0
    for round_ in range(250):
        changed = bytearray(body)
        for _ in range(source.choice((1, 1, 2, 5))):
            at = source.randrange(len(changed))
            changed[at] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
        if round_ % 3 == 0:
            del changed[source.randrange(len(changed)) :]
        batch = bytearray(61) + (compress(codec, bytes(changed)) if codec else changed)
        count = source.choice((35, 35, 34, 36, 2**31 - 1, -1))
        seal_batch(
            batch,
            attributes=codec,
            last_offset_delta=39,
            base_timestamp=0,
            max_timestamp=39,
            record_count=count,
            base_offset=5,
        )
        data = batch_of(0, 5) + bytes(batch) + batch_of(45, 2)
        try:
            expected = rows_of(data)
        except (CorruptBatch, OverflowError):
            expected = None
        try:
            rows = decoded(data)
        except CorruptRecords as error:
            assert expected is None, (round_, error)
            continue
        except OverflowError:  # of Python's datetime, which the test uses
            continue
        # Zero is a legal count; the decoder does not parse the bytes then. Kafka's texts replace what is no
        # UTF-8, the twin escapes it.
        agreed += 1
        assert expected is not None
        for row in (*rows, *expected):
            row["headers"] = None
        assert rows == expected
    assert agreed


def test_transactions_of_several_producers() -> None:
    def of(first: int, count: int, producer: int) -> bytes:
        return batch_of(first, count, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)

    data = b"".join(
        [
            of(0, 2, 7),
            of(2, 2, 8),
            batch_of(4, 1),
            marker(5, 7, False),
            of(6, 3, 7),  # the next transaction of the same producer is committed
            marker(9, 8, True),
            of(10, 2, 9),
            marker(12, 7, True),
            marker(13, 9, False),
            batch_of(14, 2, producer_id=9, producer_epoch=0, base_sequence=5),  # not transactional
        ]
    )
    aborted = [(7, 0, 5), (9, 10, 13)]
    for read_committed in (False, True):
        for start in range(16):
            rows = decoded(data, start, 16, [one for one in aborted if one[2] >= start], read_committed)
            assert rows == rows_of(data, start, 16, aborted, read_committed)
    assert [row["offset"] for row in decoded(data, 0, 16, aborted, True)] == [2, 3, 4, 6, 7, 8, 14, 15]


def test_progress_is_behind_the_last_batch_also_if_it_has_no_rows() -> None:
    builder = RowBuilder("t", 0, None, False, 100)
    decoder = Decoder(builder, 3, 20)
    list(decoder.decode(batch_of(0, 5) + marker(5, 1, True)))
    assert decoder.next_offset == 6
    list(decoder.decode(batch_of(10, 30)))
    assert decoder.next_offset == 40


def test_records_below_an_offset_that_was_skipped_to_are_left_out() -> None:
    decoder = Decoder(RowBuilder("t", 0, ("offset",), False, 100), 0, 20)
    decoder.skip_to(8)
    (rows,) = decoder.decode(batch_of(5, 5))
    assert rows.column(0).to_pylist() == [8, 9]


def test_message_sets_have_absolute_offsets() -> None:
    data = bytearray()
    append_message(data, 5, 0, 0, 0, b"k", b"magic 0")
    append_message(data, 6, 1, 8, 1234, None, b"append time")
    inner = bytearray()
    append_message(inner, 0, 1, 0, 99, b"a", None)
    append_message(inner, 1, 1, 0, 98, b"b", b"x")
    append_message(data, 9, 1, 1, 99, None, compress(1, bytes(inner)))
    rows = decoded(bytes(data) + batch_of(10, 2))
    assert [(row["offset"], row["timestampType"], row["key"], row["value"]) for row in rows[:4]] == [
        (5, -1, b"k", b"magic 0"),
        (6, 1, None, b"append time"),
        (8, 0, b"a", None),
        (9, 0, b"b", b"x"),
    ]
    assert [row["offset"] for row in decoded(bytes(data), 6, 9)] == [6, 8]
    data[-1] ^= 1
    with pytest.raises(CorruptRecords, match="checksum"):
        decoded(bytes(data))


def test_filters_leave_rows_out() -> None:
    data = b"".join(batch_of(first, 10) for first in range(0, 50, 10))
    rows = rows_of(data)
    bounds = Filters(min_offset=5, max_offset=42, min_timestamp_ms=1013, max_timestamp_ms=1044)
    assert decoded(data, filters=bounds) == rows[13:43]
    assert decoded(data, 20, 30, filters=bounds) == rows[20:30]


def test_only_the_wanted_columns_are_built_in_their_order() -> None:
    columns = ("offset", "value")
    (rows,) = Decoder(RowBuilder("t", 0, columns, True, 100), 0, 9).decode(batch_of(0, 2))
    assert rows.schema == pa.schema([schema(True).field(name) for name in columns])
    (rows,) = Decoder(RowBuilder("t", 0, (), True, 100), 0, 9).decode(batch_of(0, 2))
    assert (rows.num_rows, rows.num_columns) == (2, 0)


def test_rows_are_split_by_the_size_of_a_record_batch() -> None:
    parts = list(Decoder(RowBuilder("t", 0, None, False, 4), 0, 99).decode(batch_of(0, 10)))
    assert [part.num_rows for part in parts] == [4, 4, 2]


def test_header_names_that_are_no_utf8_are_replaced_as_in_java() -> None:
    data = bytes(build_batch([Record(0, 0, None, None, [("a\udcff", b"")])]))
    assert decoded(data)[0]["headers"] == [{"key": "a\ufffd", "value": b""}]


def test_many_headers_of_one_record() -> None:
    records = [Record(n, 0, None, None, [(str(i), bytes(i % 4)) for i in range(count)]) for n, count in
               enumerate((0, 3, 200, 64, 65))]  # fmt: skip
    data = bytes(build_batch(records))
    assert decoded(data) == rows_of(data)


def test_timestamp_beyond_the_range_of_spark_is_an_error() -> None:
    with pytest.raises(CorruptRecords, match=r"a timestamp of 9223372036854775807 ms exceeds"):
        decoded(bytes(build_batch([Record(0, 2**63 - 1, None, None, [])])))
