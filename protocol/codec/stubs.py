"""Writes `messages.pyi`, the types of the message classes; with `--check` it only compares them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from gregor.protocol import messages
from gregor.protocol.codec.model import Field, Message, Struct, Versions

STUB = Path(__file__).parents[1] / "messages.pyi"
LINE_LENGTH = 120

_PYTHON_TYPES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "int",
    "int64": "int",
    "float64": "float",
    "uuid": "Uuid",
    "string": "str",
    "bytes": "bytes",
}

_HEAD = '''\
"""Written by `python -m gregor.protocol.codec.stubs` from the schema; do not edit."""

from collections.abc import Generator
from typing import Any, ClassVar, Self

from gregor.protocol.codec.model import Message as Schema
from gregor.protocol.codec.primitives import Buffer, FileRegion
from gregor.protocol.ids import Uuid

APIS: dict[int, str]
OTHERS: dict[str, str]

class Structure:
    def replaced(self, **fields: object) -> Self: ...

class ApiMessage(Structure):
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]
    HAS_ARRAYS: ClassVar[bool]
    @classmethod
    def decode(cls, buffer: Buffer, version: int, position: int = 0) -> tuple[Self, int]: ...
    def encode(self, version: int) -> bytes: ...
    def encode_into(self, out: bytearray, version: int, splices: list[tuple[int, Any]] | None = None) -> None: ...
    @classmethod
    def decode_in_steps(
        cls, buffer: Buffer, version: int, position: int = 0
    ) -> Generator[None, None, tuple[Self, int]]: ...
    def encode_in_steps(self, out: bytearray, version: int) -> Generator[None]: ...

def request_class(api_key: int) -> type[ApiMessage] | None: ...
def response_class(api_key: int) -> type[ApiMessage] | None: ...
def request_header_version(api_key: int, version: int) -> int: ...
def response_header_version(api_key: int, version: int) -> int: ...
def message_names() -> list[str]: ...
def schema(name: str) -> Schema: ...
'''


def stub_text() -> str:
    lines = [_HEAD]
    for name in messages.message_names():
        lines.extend(_class(messages.schema(name)))
        lines.append("")
    return "\n".join(lines)


def _class(message: Message) -> Iterator[str]:
    yield f"class {message.name}(ApiMessage):"
    # Kafka's struct names are unique in a message: all classes of structs are directly in its class.
    for struct in message.structs:
        yield f"    class {struct.name}(Structure):"
        yield from _body(message, struct, 8)
        yield ""
    yield from _body(message, message, 4)


def _body(message: Message, struct: Struct, indent: int) -> Iterator[str]:
    pad = " " * indent
    typed = [(field.name, _type(message, field)) for field in struct.fields]
    for name, type_ in typed:
        yield f"{pad}{name}: {type_}"
    arguments = ["self", *(["*"] if typed else []), *(f"{name}: {type_} = ..." for name, type_ in typed)]
    line = f"{pad}def __init__({', '.join(arguments)}) -> None: ..."
    if len(line) <= LINE_LENGTH:
        yield line
        return
    yield f"{pad}def __init__("
    line = f"{pad}    {', '.join(arguments)}"
    if len(line) <= LINE_LENGTH:
        yield line
    else:
        yield from (f"{pad}    {argument}," for argument in arguments)
    yield f"{pad}) -> None: ..."


def _type(message: Message, field: Field) -> str:
    if field.element == "records":
        # Only responses may contain records in files; the receiver of a request needs no case for them.
        region = "" if message.name.endswith("Request") else " | FileRegion"
        return f"bytes | bytearray | memoryview{region} | None"
    element = _PYTHON_TYPES.get(field.element) or f"{message.name}.{field.element}"
    whole = f"list[{element}]" if field.is_array else element
    return f"{whole} | None" if field.nullable is not Versions.NONE else whole


def main(arguments: list[str]) -> int:
    text = stub_text()
    if arguments == ["--check"]:
        if STUB.exists() and STUB.read_text(encoding="utf-8") == text:
            return 0
        print(f"{STUB.name} is stale: run python -m gregor.protocol.codec.stubs", file=sys.stderr)
        return 1
    if arguments:
        print("usage: python -m gregor.protocol.codec.stubs [--check]", file=sys.stderr)
        return 2
    STUB.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
