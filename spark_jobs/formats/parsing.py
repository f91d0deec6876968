"""Avro and Protobuf values in the tasks: a function over Arrow arrays, from bytes to a struct of value and problem.

Spark has functions for both formats, in jars of its own. They read one schema of the writers for the whole query, know
no message indexes, and return null for a broken value, without a reason. Spark evaluates the annotations of the
function here, so that pyarrow is imported by the module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.formats import registry
from gregor.spark_jobs.formats.framing import FRAME_BYTES, message_indexes, schema_id_of
from gregor.spark_jobs.formats.value_format import ValueFormat

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from gregor.spark_jobs.formats.avro import AvroSchema

Decode = Callable[[bytes], Any]
"""From the bytes of a value to what Arrow accepts; it raises JobError where the job has to end, and any other exception
for a value that is not in the format."""
MAX_REASON_CHARACTERS = 500


def with_parsed(records: DataFrame, values: ValueFormat) -> DataFrame:
    """Return records with the column `parsed`, a struct of `value` and `problem`.

    Raise JobError on PySpark 4.0, which has no functions over Arrow arrays.
    """
    kind = columns_of(values)
    return records.withColumn("parsed", _function(lambda: decoder_of(values), kind, values.kind)(F.col("value")))


def columns_of(values: ValueFormat) -> T.DataType:
    """Return the type of decoded values."""
    assert values.schema is not None
    if values.kind == "avro":
        from gregor.spark_jobs.formats.avro import AvroSchema

        return AvroSchema(json.loads(values.schema)).kind
    from gregor.spark_jobs.formats.protobuf import ProtobufSchema

    return ProtobufSchema(values.schema, values.message).kind


def avro_key(keys: Column, kind: T.StructType, url: str) -> Column:
    """Return the fields of Avro keys, by the schemas that their frames name; null for a key that has not this form."""
    return _function(lambda: key_decoder(kind.names, url), kind, "avro")(keys)["value"]


def key_decoder(names: Sequence[str], url: str) -> Decode:
    """Return the function from the bytes of a key to its fields; a key that is one value is the only one of them."""
    decode = _by_id(url, None)

    def fields(key: bytes) -> Any:
        value = decode(key)
        return value if isinstance(value, dict) else dict.fromkeys(names, value) if len(names) == 1 else None

    return fields


def registered_schema(values: ValueFormat, topic: str) -> tuple[str, str]:
    """Return the newest schema of a topic's values in a registry, and its text for the user."""
    assert values.registry is not None
    registry.check_url(values.registry)
    subject = f"{topic}-value"
    form = registry.SERIALIZED if values.kind == "protobuf" else ""
    found = registry.newest_schema(values.registry, subject, form)
    _require_kind(found, values.kind, f"the newest schema of the subject {subject}")
    needed = registry.with_references(values.registry, found, form)
    if values.kind == "avro":
        from gregor.spark_jobs.formats.avro import self_contained

        text = self_contained(found.text, [one.text for _, one in needed], f"the subject {subject}")
        return text, text
    from gregor.spark_jobs.formats.protobuf import ProtobufSchema, descriptors_of_registry

    text = descriptors_of_registry([*((name, one.text) for name, one in needed), (f"{subject}.proto", found.text)])
    schema = ProtobufSchema(text, values.message, f"the subject {subject}")
    return text, f"{schema.descriptor.full_name}: {schema.kind.simpleString()}"


def _function(decoder: Callable[[], Decode], kind: T.DataType, name: str) -> Callable[[Column], Column]:
    """Return the function of a column of bytes, null for a tombstone, to structs of value and problem."""
    if not hasattr(F, "arrow_udf"):
        raise JobError(
            f"--value-format {name} needs PySpark 4.1 or newer; install it with: pip install 'pyspark==4.1.*'"
        )

    def parse(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        from pyspark.sql.pandas.types import to_arrow_type

        decode, arrow = decoder(), to_arrow_type(kind)
        for batch in batches:
            yield parsed_array(batch.to_pylist(), decode, arrow)

    parsed = T.StructType([T.StructField("value", kind), T.StructField("problem", T.StringType())])
    # As nondeterministic, it runs once for each row: Spark does not move it into the filters of later steps.
    return F.arrow_udf(parse, parsed).asNondeterministic()


def parsed_array(payloads: Sequence[bytes | None], decode: Decode, kind: pa.DataType) -> pa.Array:
    """Return structs of value and problem."""
    found: list[Any] = []
    problems: list[str | None] = []
    for payload in payloads:
        value = problem = None
        if payload is not None:
            try:
                value = decode(payload)
            except JobError:
                raise
            except Exception as error:  # of any class: the libraries have no common one for broken bytes
                problem = reason(error)
        found.append(value)
        problems.append(problem)
    return pa.StructArray.from_arrays(
        [_column(found, problems, kind), pa.array(problems, pa.string())], names=["value", "problem"]
    )


def _column(found: list[Any], problems: list[str | None], kind: pa.DataType) -> pa.Array:
    """Return the values as an array; one that the type does not hold becomes null with a problem."""
    try:
        return pa.array(found, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        pass  # of one value at least
    for at, value in enumerate(found):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            found[at], problems[at] = None, reason(error)
    return pa.array(found, kind)


def reason(error: Exception) -> str:
    """Return why a value is not decoded, in one short line."""
    text = " ".join(str(error).split())[:MAX_REASON_CHARACTERS]
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if type(error).__name__ == "NotDecodable" else f"the value cannot be decoded: {named}"


def decoder_of(values: ValueFormat) -> Decode:
    """Return the function that decodes a value with its frame."""
    return avro_decoder(values) if values.kind == "avro" else protobuf_decoder(values)


def avro_decoder(values: ValueFormat) -> Decode:
    """Return the function for Avro: with the schema that the registry has for each id, or the only one."""
    from gregor.spark_jobs.formats import avro

    assert values.schema is not None
    reader = avro.AvroSchema(json.loads(values.schema))
    url = values.registry
    if url is None:
        decode = avro.decoder_of(reader, None)
        return _behind_frame(decode) if values.framed else decode
    return _by_id(url, reader)


def _by_id(url: str, reader: AvroSchema | None) -> Decode:
    """Return the function for framed Avro; without a reader's schema a value is as it was written."""
    from gregor.spark_jobs.formats import avro

    by_id: dict[int, Decode] = {}

    def decoder_for(schema_id: int) -> Decode:
        found = registry.schema_by_id(url, schema_id)
        what = f"the schema {schema_id} of {registry.without_password(url)}"
        _require_kind(found, "avro", what)
        needed = [avro.schema_of(one.text, what) for _, one in registry.with_references(url, found)]
        return avro.decoder_of(avro.AvroSchema(avro.schema_of(found.text, what), needed, what), reader)

    def decode_by_id(value: bytes) -> Any:
        schema_id = schema_id_of(value)
        decode = by_id.get(schema_id)
        if decode is None:
            decode = by_id[schema_id] = decoder_for(schema_id)
        return decode(value[FRAME_BYTES:])

    return decode_by_id


def protobuf_decoder(values: ValueFormat) -> Decode:
    """Return the function for Protobuf, whose messages are read by the numbers of their fields, whatever wrote them.

    The schema of an id only decides whether the value is the message that is read.
    """
    from gregor.spark_jobs.formats.protobuf import ProtobufSchema, check_message, descriptors_of_registry

    assert values.schema is not None
    reader = ProtobufSchema(values.schema, values.message)
    decode, expected, url = reader.decoder(), reader.descriptor.full_name, values.registry
    if not values.framed:
        return decode
    by_id: dict[int, ProtobufSchema] = {}

    def writer_of(schema_id: int) -> ProtobufSchema:
        if url is None:
            return reader
        found = registry.schema_by_id(url, schema_id, registry.SERIALIZED)
        what = f"the schema {schema_id} of {registry.without_password(url)}"
        _require_kind(found, "protobuf", what)
        needed = registry.with_references(url, found, registry.SERIALIZED)
        files = [*((name, one.text) for name, one in needed), (f"{schema_id}.proto", found.text)]
        return ProtobufSchema(descriptors_of_registry(files), None, what)

    def decode_framed(value: bytes) -> Any:
        schema_id = schema_id_of(value)
        indexes, position = message_indexes(value)
        writer = by_id.get(schema_id)
        if writer is None:
            writer = by_id[schema_id] = writer_of(schema_id)
        check_message(expected, writer.name_at(indexes))
        return decode(value[position:])

    return decode_framed


def _behind_frame(decode: Decode) -> Decode:
    def decode_framed(value: bytes) -> Any:
        schema_id_of(value)  # there is a frame
        return decode(value[FRAME_BYTES:])

    return decode_framed


def _require_kind(found: registry.RegisteredSchema, kind: str, what: str) -> None:
    if found.kind.lower() != kind:
        raise JobError(f"{what} is one of {found.kind}, not of {kind}; correct --value-format")
