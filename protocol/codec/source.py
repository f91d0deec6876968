"""The common base of the two code generators: lines with indentation, constants by name, sizes known from the
schema."""

from __future__ import annotations

import struct as structs
from typing import Any

from gregor.protocol.codec import primitives
from gregor.protocol.codec.model import FIXED_SIZES, Field, Message, Struct
from gregor.protocol.errors import MalformedMessage
from gregor.protocol.turns import ITEMS_PER_STEP

# The functions and values that generated code may use, by their names there.
RUNTIME: dict[str, Any] = {
    "new": object.__new__,
    "view_of": memoryview,
    "unpack_from": structs.unpack_from,
    "pack": structs.pack,
    "struct_error": structs.error,
    "DECODING_ERRORS": (MalformedMessage, structs.error, IndexError, UnicodeDecodeError),
    "BYTES_TYPES": frozenset({bytes, bytearray, memoryview}),
    "ZERO_UUID": bytes(16),
    **{
        name: getattr(primitives, name)
        for name in (
            "read_uvarint",
            "read_uvarint_rest",
            "write_uvarint",
            "write_string_length",
            "skip_tags",
            "bad_length",
            "bad_count",
            "bad_tag",
            "unsupported",
            "null_refused",
            "region_refused",
            "malformed",
            "undo",
            "value_refused",
        )
    },
}

NUMBERS_PER_STEP = 4096
"""Numbers that one struct call converts: an array of plain numbers has no loop in which ITEMS_PER_STEP could count."""


class Source:
    """Collects the source of one (message, version) and the values of its names.

    With `in_steps` it is a generator that yields None after each step. A tag section is always part of one step.

    `classes` are those of the message and its structs by name; `defaults` are the shared default objects of structs.
    """

    def __init__(
        self,
        message: Message,
        version: int,
        classes: dict[str, type],
        defaults: dict[str, object],
        in_steps: bool = False,
    ) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.flexible
        self.values: dict[str, Any] = dict(RUNTIME)
        self.values.update(classes)
        self.values.update({f"default_{name}": default for name, default in defaults.items()})
        self.lines: list[str] = []
        self.depth = 0
        self.in_steps = in_steps
        """Whether the lines that are written now may yield: those of the main function of a codec that works in
        steps."""
        self.functions: dict[str, list[str]] = {}
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def begin(self, head: str) -> None:
        """Write the first lines of the main function, down to a `try` around all the others."""
        self.line(head)
        self.depth = 1
        if self.in_steps:
            self.line("count = 0")
            self.line("if False: yield")  # makes it a generator, also without an array
        self.line("try:")
        self.depth = 2

    def handle(self, *lines: str) -> None:
        """Write the last lines, which handle the errors of all the others."""
        self.depth = 1
        for line in lines:
            self.line(line)

    def step(self) -> None:
        """Write the lines that end a step after some elements; they belong into the loop over an array."""
        if self.in_steps:
            self.line("count += 1")
            self.line(f"if not count % {ITEMS_PER_STEP}: yield")

    def fresh(self, prefix: str) -> str:
        """Return a local name that is not in use."""
        self._names += 1
        return f"{prefix}{self._names}"

    def codec(self, format: str, method: str) -> str:
        """Return the name of a bound struct method for a format without its byte order."""
        name = f"{method}_{format.replace('?', 'o')}"
        if name not in self.values:
            self.values[name] = getattr(structs.Struct(">" + format), method)
        return name

    def default_struct(self, struct: Struct) -> str:
        """Return an expression for a struct of defaults."""
        name = f"default_{struct.name}"
        return name if name in self.values else f"{struct.name}()"

    def has(self, field: Field) -> bool:
        return self.version in field.versions

    def is_tagged(self, field: Field) -> bool:
        return self.version in field.tagged

    def is_nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def is_compact(self, field: Field) -> bool:
        return self.flexible and self.version in field.flexible

    def tagged_fields(self, struct: Struct) -> list[Field]:
        """Return the fields of the tag section in this version, in the order of their tags."""
        fields = [field for field in struct.fields if self.has(field) and self.is_tagged(field)]
        return sorted(fields, key=lambda field: field.tag or 0)

    def where(self, struct: Struct, field: Field) -> str:
        """Return the name of a field in errors, as a literal."""
        owner = self.message.name if struct is self.message else f"{self.message.name}.{struct.name}"
        return repr(f"{owner}.{field.name}")

    def min_size_bytes(self, struct: Struct) -> int:
        """Return the smallest size of the struct in this version. It bounds the element count that bytes can claim."""
        size_bytes = 1 if self.flexible else 0
        for field in struct.fields:
            if self.has(field) and not self.is_tagged(field):
                size_bytes += self.min_field_bytes(field)
        return size_bytes

    def min_field_bytes(self, field: Field) -> int:
        if field.is_array:
            return 1 if self.is_compact(field) else 4
        return self.min_element_bytes(field)

    def min_element_bytes(self, field: Field) -> int:
        if field.struct is not None:
            return 1 if self.is_nullable(field) and not field.is_array else self.min_size_bytes(field.struct)
        if field.element in FIXED_SIZES:
            return FIXED_SIZES[field.element]
        if self.is_compact(field):
            return 1
        return 2 if field.element == "string" else 4

    def execute(self, entry: str) -> Any:
        """Compile the collected source and return its function `entry`."""
        text = "\n".join(line for lines in (*self.functions.values(), self.lines) for line in lines)
        exec(compile(text, f"<{entry} {self.message.name} v{self.version}>", "exec"), self.values)
        return self.values[entry]
