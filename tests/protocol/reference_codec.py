"""The slow and obvious codec: reads the schema field by field, one value at a time. The compiled codec must equal it.

Written from the protocol guide and KIP-482, and shares nothing with the compiler but the schema itself.
"""

from __future__ import annotations

import struct
from typing import Any

from gregor.protocol.codec.model import Field, Message, Struct
from gregor.protocol.codec.primitives import Buffer

FORMATS = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}


class Malformed(Exception):
    pass


# ---- encoding


def encode(message: Message, value: Any, version: int) -> bytes:
    return _encode_struct(message, message, type(value), value, version)


def _encode_struct(message: Message, struct_: Struct, root: Any, value: Any, version: int) -> bytes:
    out = b""
    tags: dict[int, bytes] = {}
    for field in struct_.fields:
        if version not in field.versions:
            continue
        item = getattr(value, field.name)
        if version in field.tagged:
            if item != default_value(field, root):
                assert field.tag is not None
                tags[field.tag] = _encode_value(message, field, root, item, version)
        else:
            out += _encode_value(message, field, root, item, version)
    if version in message.flexible:
        out += uvarint(len(tags))
        for tag in sorted(tags):
            out += uvarint(tag) + uvarint(len(tags[tag])) + tags[tag]
    return out


def default_value(field: Field, root: Any) -> Any:
    if field.default is None:
        return None
    if field.is_array:
        return []
    return getattr(root, field.element)() if field.is_struct else field.default


def _encode_value(message: Message, field: Field, root: Any, value: Any, version: int) -> bytes:
    compact = version in message.flexible and version in field.flexible
    if field.is_array:
        out = _encode_length(None if value is None else len(value), compact, ">i")
        return out + b"".join(_encode_element(message, field, root, item, version, compact) for item in value or [])
    if field.is_struct and version in field.nullable:
        if value is None:
            return b"\0" if version in field.tagged else b"\xff"
        return b"\x01" + _encode_element(message, field, root, value, version, compact)
    return _encode_element(message, field, root, value, version, compact)


def _encode_element(message: Message, field: Field, root: Any, value: Any, version: int, compact: bool) -> bytes:
    kind = field.element
    if field.struct is not None:
        return _encode_struct(message, field.struct, root, value, version)
    if kind in FORMATS:
        return struct.pack(FORMATS[kind], value)
    if kind == "uuid":
        return bytes(value)
    raw = value.encode("utf-8") if kind == "string" and value is not None else value
    return _encode_length(None if raw is None else len(raw), compact, ">h" if kind == "string" else ">i") + (raw or b"")


def _encode_length(length: int | None, compact: bool, format: str) -> bytes:
    if compact:
        return uvarint(0 if length is None else length + 1)
    return struct.pack(format, -1 if length is None else length)


def uvarint(value: int) -> bytes:
    if value < 128:
        return bytes([value])
    return bytes([value % 128 + 128]) + uvarint(value // 128)


# ---- decoding


def decode(message: Message, class_: Any, data: Buffer, version: int) -> tuple[Any, int]:
    reader = _Reader(bytes(data))
    return _decode_struct(message, message, class_, class_, reader, version), reader.position


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.data) - self.position:
            raise Malformed
        self.position += count
        return self.data[self.position - count : self.position]

    def uvarint(self) -> int:
        value = 0
        for index in range(5):
            byte = self.take(1)[0]
            value += (byte % 128) << 7 * index
            if byte < 128:
                if value >= 2**32:
                    raise Malformed
                return value
        raise Malformed

    def length(self, compact: bool, format: str) -> int | None:
        length = self.uvarint() - 1 if compact else struct.unpack(format, self.take(struct.calcsize(format)))[0]
        if length < -1:
            raise Malformed
        return None if length == -1 else length


def _decode_struct(message: Message, struct_: Struct, root: Any, class_: Any, reader: _Reader, version: int) -> Any:
    values: dict[str, Any] = {}
    tagged: dict[int, Field] = {}
    for field in struct_.fields:
        if version not in field.versions:
            continue
        if version in field.tagged:
            assert field.tag is not None
            tagged[field.tag] = field
        else:
            values[field.name] = _decode_value(message, field, root, reader, version)
    if version in message.flexible:
        for _ in range(reader.uvarint()):
            tag = reader.uvarint()
            size_bytes = reader.uvarint()
            end = reader.position + size_bytes
            if end > len(reader.data):
                raise Malformed
            if tag in tagged:
                values[tagged[tag].name] = _decode_value(message, tagged[tag], root, reader, version)
                if reader.position != end:
                    raise Malformed
            reader.position = end
    return class_(**values)


def _decode_value(message: Message, field: Field, root: Any, reader: _Reader, version: int) -> Any:
    compact = version in message.flexible and version in field.flexible
    if field.is_array:
        count = reader.length(compact, ">i")
        if count is None:
            if version not in field.nullable:
                raise Malformed
            return None
        if count > len(reader.data) - reader.position:
            raise Malformed
        return [_decode_element(message, field, root, reader, version, compact, False) for _ in range(count)]
    nullable = version in field.nullable
    if field.is_struct and nullable and struct.unpack(">b", reader.take(1))[0] < (version in field.tagged):
        return None
    return _decode_element(message, field, root, reader, version, compact, nullable)


def _decode_element(
    message: Message, field: Field, root: Any, reader: _Reader, version: int, compact: bool, nullable: bool
) -> Any:
    kind = field.element
    if field.struct is not None:
        return _decode_struct(message, field.struct, root, getattr(root, kind), reader, version)
    if kind in FORMATS:
        return struct.unpack(FORMATS[kind], reader.take(struct.calcsize(FORMATS[kind])))[0]
    if kind == "uuid":
        return reader.take(16)
    length = reader.length(compact, ">h" if kind == "string" else ">i")
    if length is None:
        if not nullable:
            raise Malformed
        return None
    if kind == "string" and length > 32767:
        raise Malformed
    raw = reader.take(length)
    if kind != "string":
        return raw
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed from None
