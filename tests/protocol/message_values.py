"""Random messages of any schema and version: the ordinary, the empty, the null, and the sizes around a boundary."""

from __future__ import annotations

from random import Random
from typing import Any

from gregor.protocol import messages
from gregor.protocol.codec.model import Field, Message, Struct

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
# 127 and 128 bytes are the last one-byte and the first two-byte compact lengths but one.
TEXTS = ["", "a", "topic", "Grüße", "\x00", "日本語", "x" * 126, "x" * 127, "x" * 128, "y" * 300]
LONG_COUNTS = [126, 127, 128]


def every_version() -> list[tuple[str, int]]:
    """(message name, version) of everything that can be coded."""
    return [(name, version) for name in messages.message_names() for version in messages.schema(name).versions]


def random_message(random: Random, name: str, version: int) -> Any:
    """A message that survives encode and decode at that version: fields it lacks keep their defaults."""
    return random_of_class(random, messages.schema(name), getattr(messages, name), version)


def random_of_class(random: Random, schema: Message, class_: Any, version: int) -> Any:
    return _random_struct(random, schema, schema, class_, class_, version, True)


def _random_struct(
    random: Random, schema: Message, struct: Struct, root: Any, class_: Any, version: int, is_top: bool
) -> Any:
    values = {
        field.name: _random_field(random, schema, field, root, version, is_top)
        for field in struct.fields
        if version in field.versions and not (version in field.tagged and random.random() < 0.5)
    }
    return class_(**values)


def _random_field(random: Random, schema: Message, field: Field, root: Any, version: int, is_top: bool) -> Any:
    if version in field.nullable and random.random() < 0.25:
        return None
    if not field.is_array:
        return _random_value(random, schema, field, root, version)
    count = random.choice([0, 1, 1, 2, 3])
    if random.random() < 0.05 and not field.is_struct and is_top:
        count = random.choice(LONG_COUNTS)
    return [_random_value(random, schema, field, root, version) for _ in range(count)]


def _random_value(random: Random, schema: Message, field: Field, root: Any, version: int) -> Any:
    kind = field.element
    if field.struct is not None:
        return _random_struct(random, schema, field.struct, root, getattr(root, kind), version, False)
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        return random.choice([low, high, 0, min(1, high), random.randint(low, high), random.randint(0, 100)])
    if kind == "bool":
        return random.random() < 0.5
    if kind == "float64":
        return random.choice([0.0, -1.5, 1e300])
    if kind == "uuid":
        return random.choice([bytes(16), random.getrandbits(128).to_bytes(16, "big")])
    text = random.choice(TEXTS)
    return text if kind == "string" else text.encode()
