"""Protobuf values as rows: the types of Spark as its `from_protobuf` has them, the bytes decoded by protobuf (upb).

A field without presence has its default where it is absent, as Protobuf defines it; one with presence (`optional`,
a message, a member of a `oneof`) is null. A number that an enum does not name is the text of the number.
"""

from __future__ import annotations

import base64
import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import types as T

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.formats.framing import NotDecodable

Convert = Callable[[Any], Any]

HOW_TO_INSTALL = "install it with: pip install 'gregor[formats]'"
COMPILE_TIMEOUT_S = 60
MICROS = 1_000_000
_OF_THE_LOG = ("WARNING:", "W0000", "I0000")
"""The beginnings of the lines that the compiler logs beside its errors."""


def descriptors_of_file(path: str, message: str | None) -> str:
    """Return the schema in a .proto file or a file with a descriptor set; raise JobError if it has no such message."""
    _require_protobuf()
    try:
        data = compiled(Path(path)) if path.endswith(".proto") else Path(path).read_bytes()
    except OSError as error:
        raise JobError(f"the schema file {path} cannot be read: {error.strerror}") from error
    schema = base64.b64encode(_without_source(data, path)).decode()
    assert ProtobufSchema(schema, message).kind  # or a JobError
    return schema


def compiled(path: Path) -> bytes:
    """Return the descriptor set of a .proto file and of the files that it imports, from its folder."""
    path.read_bytes()  # a missing file is an OSError
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "set"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={path.parent}", "--include_imports"]
        command += [f"--descriptor_set_out={target}", path.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise JobError(f"the compiler of {path} did not end within {COMPILE_TIMEOUT_S} s") from error
        if "No module named" in done.stderr:
            raise JobError(
                f"{path} needs the compiler of grpcio-tools; {HOW_TO_INSTALL}. Or give a descriptor set: "
                f"protoc --include_imports --descriptor_set_out=FILE {path.name}"
            )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if not line.startswith(_OF_THE_LOG)]
            raise JobError(f"{path} is no Protobuf schema: {' '.join(lines)}")
        return target.read_bytes()


def descriptors_of_registry(files: Iterable[tuple[str, str]]) -> str:
    """Return the schema of FileDescriptorProtos in base64, with the names under which they are imported."""
    _require_protobuf()
    from google.protobuf import descriptor_pb2

    found = descriptor_pb2.FileDescriptorSet()
    for name, text in files:
        try:
            one = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except Exception as error:  # a DecodeError of the library, or no base64
            raise JobError(
                f"the registry returned no descriptor for the Protobuf schema {name}; it has no ?format=serialized. "
                "Give --schema-file with the .proto file, and --schema-registry without a URL"
            ) from error
        one.name = name
        found.file.append(one)
    return base64.b64encode(found.SerializeToString()).decode()


def _require_protobuf() -> None:
    try:
        import google.protobuf.message  # noqa: F401
    except ModuleNotFoundError as error:
        raise JobError(f"protobuf values need the library protobuf; {HOW_TO_INSTALL}") from error


def _without_source(data: bytes, path: str) -> bytes:
    """Return a descriptor set without comments and positions."""
    from google.protobuf import descriptor_pb2

    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(data)
    except Exception as error:
        raise JobError(
            f"{path} is no descriptor set; write one by protoc --include_imports --descriptor_set_out=FILE"
        ) from error
    for one in found.file:
        one.ClearField("source_code_info")
    return bytes(found.SerializeToString())


class ProtobufSchema:
    """A message of a descriptor set; the last file of the set is that of the schema, as protoc writes it."""

    def __init__(self, schema: str, message: str | None = None, what: str = "--schema-file") -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool

        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema)).file
        if not files:
            raise JobError(f"{what} has no Protobuf file")
        pool = descriptor_pool.DescriptorPool()
        try:
            for one in [*_well_known(files), *files]:
                pool.Add(one) if hasattr(pool, "Add") else pool.AddSerializedFile(one.SerializeToString())
            self._file = pool.FindFileByName(files[-1].name)
            for one in files:
                pool.FindFileByName(one.name)
        except Exception as error:  # TypeError or KeyError, by the implementation
            raise JobError(f"{what} is no complete Protobuf schema: {error}") from error
        self._what = what
        self._paths = dict(_paths(files[-1]))
        self.descriptor = self._message(pool, message, what)

    @functools.cached_property
    def _columns(self) -> tuple[T.DataType, Convert]:
        return _Columns(self._what).message(self.descriptor, ())

    @property
    def kind(self) -> T.DataType:
        """Return the type of the message in Spark; raise JobError if it has none."""
        return self._columns[0]

    def _message(self, pool: Any, name: str | None, what: str) -> Any:
        if name is None:
            if not self._paths:
                raise JobError(f"{what} has no message in {self._file.name}")
            name = next(full for full, indexes in self._paths.items() if indexes == (0,))
        try:
            return pool.FindMessageTypeByName(name)
        except KeyError as error:
            raise JobError(
                f"{what} has no message {name}; --message is one of {', '.join(self._paths) or 'none'}"
            ) from error

    def name_at(self, indexes: tuple[int, ...]) -> str | None:
        """Return the full name of the message to which indexes lead in the file of the schema."""
        return next((name for name, found in self._paths.items() if found == indexes), None)

    def decoder(self) -> Callable[[bytes], Any]:
        """Return the function from the bytes of a message to what Arrow accepts."""
        from google.protobuf import message_factory

        parse, convert = message_factory.GetMessageClass(self.descriptor).FromString, self._columns[1]
        return lambda payload: convert(parse(payload))


def _well_known(files: Iterable[Any]) -> list[Any]:
    """Return the files of google/protobuf that are imported and not in the set."""
    from google.protobuf import descriptor_pb2

    given = {one.name for one in files}
    found: dict[str, Any] = {}

    def add(names: Iterable[str]) -> None:
        for name in names:
            if name in given or name in found or not name.startswith("google/protobuf/"):
                continue
            try:
                file = _well_known_pool().FindFileByName(name)
            except KeyError:
                continue
            proto = descriptor_pb2.FileDescriptorProto()
            file.CopyToProto(proto)
            add(proto.dependency)
            found[name] = proto

    for one in files:
        add(one.dependency)
    return list(found.values())


@functools.cache
def _well_known_pool() -> Any:
    """Return the pool that has the files of google/protobuf."""
    from google.protobuf import (  # noqa: F401
        any_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    return descriptor_pool.Default()


def _paths(file: Any) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Yield the full names of the messages of a file, with the indexes that lead to them."""

    def below(messages: Any, prefix: str, path: tuple[int, ...]) -> Iterable[tuple[str, tuple[int, ...]]]:
        for at, one in enumerate(messages):
            full = f"{prefix}{one.name}"
            yield full, (*path, at)
            yield from below(one.nested_type, f"{full}.", (*path, at))

    return below(file.message_type, f"{file.package}." if file.package else "", ())


class _Columns:
    """The types of Spark for the messages of one schema, and the conversions of their values."""

    def __init__(self, what: str) -> None:
        self._what = what

    def message(self, descriptor: Any, within: tuple[str, ...]) -> tuple[T.DataType, Convert]:
        """Return the type and the conversion of a message; `within` are the messages around it."""
        name = descriptor.full_name
        if name in within:
            raise JobError(f"{self._what} has no columns in Spark: the message {name} contains itself")
        if name == "google.protobuf.Timestamp":
            return T.TimestampType(), _micros
        if name == "google.protobuf.Duration":
            return T.DayTimeIntervalType(), _micros
        columns, steps = [], []
        for field in descriptor.fields:
            kind, step = self._field(field, (*within, name))
            columns.append(T.StructField(field.name, kind))
            steps.append((field.name, step))
        pairs = tuple(steps)
        return T.StructType(columns), lambda value: {name: step(value) for name, step in pairs}

    def _field(self, field: Any, within: tuple[str, ...]) -> tuple[T.DataType, Convert]:
        """Return the type of a field, and the function from its message to its value."""
        name = field.name
        if _is_repeated(field):
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                return self._map(field, within)
            kind, convert = self._one(field, within)
            if convert is None:
                return T.ArrayType(kind), lambda message: list(getattr(message, name))
            return T.ArrayType(kind), lambda message: [convert(one) for one in getattr(message, name)]
        kind, convert = self._one(field, within)
        if not field.has_presence:
            if convert is None:
                return kind, lambda message: getattr(message, name)
            return kind, lambda message: convert(getattr(message, name))

        def present(message: Any) -> Any:
            if not message.HasField(name):
                return None
            value = getattr(message, name)
            return value if convert is None else convert(value)

        return kind, present

    def _map(self, field: Any, within: tuple[str, ...]) -> tuple[T.DataType, Convert]:
        name, parts = field.name, field.message_type.fields_by_name
        key, of_key = self._one(parts["key"], within)
        value, of_value = self._one(parts["value"], within)

        def pairs(message: Any) -> list[tuple[Any, Any]]:
            return [
                (one if of_key is None else of_key(one), found if of_value is None else of_value(found))
                for one, found in getattr(message, name).items()
            ]

        return T.MapType(key, value), pairs

    def _one(self, field: Any, within: tuple[str, ...]) -> tuple[T.DataType, Convert | None]:
        """Return the type and the conversion of a single value of a field."""
        from google.protobuf.descriptor import FieldDescriptor as Kind

        if field.message_type is not None:
            return self.message(field.message_type, within)
        if field.enum_type is not None:
            names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
            return T.StringType(), lambda number: names.get(number) or str(number)
        if field.type in (Kind.TYPE_UINT32, Kind.TYPE_FIXED32):
            return T.LongType(), None
        kinds: dict[int, T.DataType] = {
            Kind.CPPTYPE_INT32: T.IntegerType(),
            Kind.CPPTYPE_INT64: T.LongType(),
            Kind.CPPTYPE_UINT64: T.DecimalType(20, 0),
            Kind.CPPTYPE_FLOAT: T.FloatType(),
            Kind.CPPTYPE_DOUBLE: T.DoubleType(),
            Kind.CPPTYPE_BOOL: T.BooleanType(),
            Kind.CPPTYPE_STRING: T.BinaryType() if field.type == Kind.TYPE_BYTES else T.StringType(),
        }
        return kinds[field.cpp_type], None


def _is_repeated(field: Any) -> bool:
    """Return whether a field is repeated; `label` is gone from newer versions of the library."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED) if found is None else bool(found)


def _micros(value: Any) -> int:
    """Return a Timestamp or a Duration in microseconds."""
    number: int = value.seconds * MICROS + value.nanos // 1000
    return number


def check_message(expected: str, found: str | None) -> None:
    """Raise NotDecodable unless a value is the message that is read."""
    if found != expected:
        raise NotDecodable(f"the value is the message {found or 'that is none of its schema'}, not {expected}")
