"""Rows of the source's schema, built from parsed records: the arrays of the columns that are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gregor.protocol.records.batch import LOG_APPEND_TIME, RecordBatch
from gregor.protocol.records.message_sets import Message
from gregor.spark_jobs.arrow.columns import Records, binary_array, headers_array
from gregor.spark_jobs.arrow.plan import CorruptRecords
from gregor.spark_jobs.arrow.schema import schema
from gregor.spark_jobs.arrow.varints import Numbers, Octets

NO_TIMESTAMP_TYPE = -1
MICROSECONDS = 1000
"""In a millisecond."""
MAX_TIMESTAMP_MS = (2**63 - 1) // MICROSECONDS


class BatchNumbers(NamedTuple):
    """The numbers of each record that depend on the header of its batch."""

    offsets: Numbers
    timestamps_ms: Numbers
    timestamp_types: Numbers

    @classmethod
    def of(cls, batches: Sequence[RecordBatch], counts: Numbers, records: Records) -> BatchNumbers:
        """Add the deltas of the records to the bases of their batches; sums wrap at 64 bits, as in Java."""
        offsets = records.offset_deltas + np.repeat(_column(batches, "base_offset"), counts)
        timestamps = records.timestamp_deltas + np.repeat(_column(batches, "base_timestamp"), counts)
        types = np.repeat(_column(batches, "timestamp_type"), counts)
        if types.any():
            appended = types == LOG_APPEND_TIME
            timestamps[appended] = np.repeat(_column(batches, "max_timestamp"), counts)[appended]
        return cls(offsets, timestamps, types)


def _column(batches: Sequence[RecordBatch], name: str) -> Numbers:
    return np.array([getattr(batch, name) for batch in batches], dtype=np.int64)


class RowBuilder:
    """Builds the rows of one partition."""

    def __init__(
        self, topic: str, partition: int, columns: Sequence[str] | None, include_headers: bool, max_batch_rows: int
    ) -> None:
        whole = schema(include_headers)
        self.schema: pa.Schema = whole if columns is None else pa.schema([whole.field(name) for name in columns])
        self.wants_headers = "headers" in self.schema.names
        self._topic = topic
        self._partition = partition
        self._max_batch_rows = max_batch_rows
        self._topics = pa.array([], pa.string())

    def corrupt(self, offset: int, problem: str) -> CorruptRecords:
        """Return the error of the batch or record at an offset."""
        return CorruptRecords(self._topic, self._partition, offset, problem)

    def build(
        self, octets: Octets, records: Records, numbers: BatchNumbers, kept: NDArray[np.int64] | None
    ) -> Iterator[pa.RecordBatch]:
        """Build the rows of the records whose indexes are `kept`; None: of all."""
        offsets, timestamps, types = numbers if kept is None else (one[kept] for one in numbers)
        if not len(offsets):
            return
        columns: dict[str, Any] = {}
        for name in self.schema.names:
            if name == "key":
                columns[name] = binary_array(octets, records.keys, kept)
            elif name == "value":
                columns[name] = binary_array(octets, records.values, kept)
            elif name == "offset":
                columns[name] = pa.array(offsets)
            elif name == "timestamp":
                columns[name] = self._timestamps(offsets, timestamps)
            elif name == "timestampType":
                columns[name] = pa.array(types.astype(np.int32))
            elif name == "headers" and records.headers is not None:
                columns[name] = headers_array(octets, records.headers, kept)
        yield from self._rows(columns, len(offsets))

    def build_messages(self, messages: Sequence[Message]) -> Iterator[pa.RecordBatch]:
        """Build the rows of messages of the formats 0 and 1, which have no headers."""
        if not messages:
            return
        offsets = np.array([one.offset for one in messages], dtype=np.int64)
        timestamps = np.array([one.timestamp for one in messages], dtype=np.int64)
        types = [one.timestamp_type if one.magic else NO_TIMESTAMP_TYPE for one in messages]
        columns = {
            "key": pa.array([one.key for one in messages], pa.binary()),
            "value": pa.array([one.value for one in messages], pa.binary()),
            "offset": pa.array(offsets),
            "timestamp": self._timestamps(offsets, timestamps),
            "timestampType": pa.array(types, pa.int32()),
        }
        if self.wants_headers:
            columns["headers"] = pa.nulls(len(messages), self.schema.field("headers").type)
        yield from self._rows(columns, len(messages))

    def _rows(self, columns: dict[str, Any], count: int) -> Iterator[pa.RecordBatch]:
        """Add the columns that are the same in all rows, and split what exceeds the size of a record batch."""
        if "topic" in self.schema.names:
            if len(self._topics) < count:
                self._topics = pa.repeat(pa.scalar(self._topic, pa.string()), count)
            columns["topic"] = self._topics.slice(0, count)
        if "partition" in self.schema.names:
            columns["partition"] = pa.array(np.full(count, self._partition, dtype=np.int32))
        arrays = [columns[name] for name in self.schema.names]
        if arrays:
            rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        else:
            # Only the number of rows counts: a record batch without columns has none unless it comes from a struct.
            rows = pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        for start in range(0, count, self._max_batch_rows):
            yield rows.slice(start, self._max_batch_rows)

    def _timestamps(self, offsets: Numbers, timestamps_ms: Numbers) -> pa.Array:
        beyond = np.flatnonzero((timestamps_ms > MAX_TIMESTAMP_MS) | (timestamps_ms < -MAX_TIMESTAMP_MS))
        if len(beyond):
            first = int(beyond[0])
            raise self.corrupt(
                int(offsets[first]), f"a timestamp of {timestamps_ms[first]} ms exceeds Spark's range of timestamps"
            )
        return pa.array(timestamps_ms * MICROSECONDS).cast(self.schema.field("timestamp").type)
