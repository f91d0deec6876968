"""The columns of a row, in the names, types and order of Spark's Kafka connector (KafkaRecordToRowConverter)."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


@cache
def schema(include_headers: bool) -> pa.Schema:
    """Return the columns of a row; that of the headers is there only if it is wanted."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if include_headers:
        fields.append(pa.field("headers", pa.list_(HEADER_TYPE)))
    return pa.schema(fields)
