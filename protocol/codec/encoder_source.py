"""Writes the encoder of one (message, version): a flat Python function that appends to a bytearray.

Rules of the generated code:
- Neighbouring fixed-size fields become one struct call, together with the length that follows them. A compact length
  below 128 is one byte and part of the call; a longer one is written in the second branch.
- A zero byte of every message (an empty tag section) is struct's pad byte "x".
- Tags are written only if some tagged field differs from its default. With the shared default struct that is a test of
  identity; the tag function finds all other values that equal the default.
- `out` is the output, `n` a length, `b` encoded bytes, `v` the current value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gregor.protocol.codec.model import FIXED, Field, Message, Struct, Versions
from gregor.protocol.codec.source import NUMBERS_PER_STEP, Source


def build_encoder(
    message: Message, version: int, classes: dict[str, type], defaults: dict[str, object], *, in_steps: bool = False
) -> Any:
    """Return a function (message, out, splices), or with `in_steps` a generator; `splices` is a list for file regions,
    or None."""
    return _EncoderSource(message, version, classes, defaults, in_steps).build()


class _EncoderSource(Source):
    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        # Values that one struct call will write: (format, expression; none for a pad byte).
        self.pending: list[tuple[str, str]] = []
        self.out = "out"

    def build(self) -> Any:
        self.begin("def encode(m, out, splices):")
        self.line("start = len(out)")
        start = len(self.lines)
        self.fields(self.message, "m")
        self.flush()
        if len(self.lines) == start:
            self.line("pass")
        name = f"{self.message.name} v{self.version}"
        if self.in_steps:
            self.handle("except struct_error as error:", f"    value_refused({name!r}, error)")
        else:
            self.handle(
                "except BaseException as error:",
                "    undo(out, start, splices)",
                f"    value_refused({name!r}, error)",
                "    raise",
            )
        return self.execute("encode")

    def fields(self, struct: Struct, source: str) -> None:
        for field in struct.fields:
            if not self.has(field) and not field.ignorable:
                self.line(f"if {self.differs(field, f'{source}.{field.name}')}:")
                self.line(f"    raise unsupported({self.where(struct, field)}, {self.version})")
        for field in struct.fields:
            if self.has(field) and not self.is_tagged(field):
                self.field(struct, field, f"{source}.{field.name}")
        if not self.flexible:
            return
        tagged = self.tagged_fields(struct)
        if not tagged:
            self.pending.append(("x", ""))
            return
        self.packed_if(
            " and ".join(self.surely_default(field, f"{source}.{field.name}") for field in tagged),
            ("x", ""),
            lambda: self.line_behind(f"{self.tag_function(struct)}({source}, {self.out})"),
        )

    def packed_if(self, condition: str, value: tuple[str, str], otherwise: Callable[[], None]) -> None:
        """Write all pending values, then `value` in the same call if the condition holds, else call `otherwise`."""
        pending = list(self.pending)
        self.line(f"if {condition}:")
        self.depth += 1
        self.pending.append(value)
        self.flush()
        self.depth -= 1
        self.line("else:")
        self.depth += 1
        self.pending = pending
        otherwise()
        self.flush()
        self.depth -= 1

    def line_behind(self, line: str) -> None:
        self.flush()
        self.line(line)

    def flush(self, extra: str = "") -> None:
        """Write the pending values."""
        if not self.pending:
            return
        format = "".join(letter for letter, _ in self.pending)
        values = ", ".join(value for letter, value in self.pending if letter != "x")
        if format == "x":
            self.line(f"{self.out}.append(0)")
        elif format == "B":
            self.line(f"{self.out}.append({values})")
        else:
            self.line(f"{self.out} += {self.codec(format, 'pack')}({values})")
        self.pending = []

    def differs(self, field: Field, value: str) -> str:
        """Return a condition: the value is not the field's default."""
        if field.default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} != []"
        if field.struct is not None:
            default = self.default_struct(field.struct)
            return f"{value} is not {default} and {value} != {default}"
        if field.element == "uuid":
            return f"{value} != ZERO_UUID"
        return value if field.default is False else f"{value} != {field.default!r}"

    def surely_default(self, field: Field, value: str) -> str:
        """Return a cheap condition that holds only for the default, but perhaps not for each value that equals it."""
        if field.default is None:
            return f"{value} is None"
        if field.is_array:
            return f"{value} == []" if self.is_nullable(field) else f"not {value}"
        if field.struct is not None:
            return f"{value} is {self.default_struct(field.struct)}"
        if field.element == "uuid":
            return f"{value} == ZERO_UUID"
        return f"{value} == {field.default!r}"

    def field(self, struct: Struct, field: Field, value: str) -> None:
        where = self.where(struct, field)
        if field.is_array:
            self.array(field, value, where)
        elif field.struct is not None:
            self.nested(field, field.struct, value)
        elif field.element in FIXED:
            self.pending.append((FIXED[field.element], value))
        else:
            name = self.fresh("v")
            self.line(f"{name} = {value}")
            self.null_or(field, name, where, lambda: self.variable(field, name))

    def null_or(self, field: Field, name: str, where: str, present: Callable[[], None]) -> None:
        """Write the null form of a variable `name`, or call `present`. If nullable, no value is pending afterwards."""
        if not self.is_nullable(field):
            if field.nullable is not Versions.NONE or field.default is None:
                self.line(f"if {name} is None:")
                self.line(f"    raise null_refused({where}, {self.version})")
            present()
            return
        null = ("x", "") if self.is_compact(field) else ("h" if field.type == "string" else "i", "-1")
        self.packed_if(f"{name} is None", null, present)

    def length(self, field: Field, size: str, letter: str) -> None:
        """Write a length together with all pending values."""
        if not self.is_compact(field):
            self.pending.append((letter, size))
            self.flush()
            return
        self.line(f"n = {size} + 1")
        long = f"write_{'string_length' if letter == 'h' else 'uvarint'}({self.out}, n)"
        self.packed_if("n < 128", ("B", "n"), lambda: self.line_behind(long))

    def variable(self, field: Field, name: str) -> None:
        """Write a string, bytes or records that is not null."""
        if field.element == "string":
            self.line(f"b = {name}.encode()")
            self.length(field, "len(b)", "h")
            self.line(f"{self.out} += b")
        elif field.element == "bytes":
            self.length(field, f"len({name})", "i")
            self.line(f"{self.out} += {name}")
        else:
            self.line(f"is_region = type({name}) not in BYTES_TYPES")
            self.line(f"size = {name}.size_bytes if is_region else len({name})")
            self.length(field, "size", "i")
            self.line("if is_region:")
            self.line("    if splices is None:")
            self.line("        raise region_refused()")
            self.line(f"    splices.append((len(out), {name}))")
            self.line("else:")
            self.line(f"    out += {name}")

    def nested(self, field: Field, struct: Struct, value: str) -> None:
        name = self.fresh("v")
        self.line(f"{name} = {value}")
        if not self.is_nullable(field):
            self.fields(struct, name)
            return
        # KIP-893: a signed byte before a nullable struct, negative for null; in a tag it is 0 for null.
        pending = list(self.pending)
        self.line(f"if {name} is None:")
        self.depth += 1
        self.pending.append(("b", "0" if self.is_tagged(field) else "-1"))
        self.flush()
        self.depth -= 1
        self.line("else:")
        self.depth += 1
        self.pending = [*pending, ("b", "1")]
        self.fields(struct, name)
        self.flush()
        self.depth -= 1

    def array(self, field: Field, value: str, where: str) -> None:
        name = self.fresh("v")
        self.line(f"{name} = {value}")
        self.null_or(field, name, where, lambda: self.elements(field, name))

    def elements(self, field: Field, name: str) -> None:
        self.length(field, f"len({name})", "i")
        if field.element in FIXED and field.element != "uuid":
            letter = FIXED[field.element]
            if self.in_steps:
                self.line(f"for i in range(0, len({name}), {NUMBERS_PER_STEP}):")
                self.line("    if i: yield")
                self.line(f"    part = {name}[i:i + {NUMBERS_PER_STEP}]")
                self.line(f'    {self.out} += pack(f">{{len(part)}}{letter}", *part)')
                return
            self.line(f"if {name}:")
            self.line(f'    {self.out} += pack(f">{{len({name})}}{letter}", *{name})')
            return
        item = self.fresh("v")
        self.line(f"for {item} in {name}:")
        self.depth += 1
        start = len(self.lines)
        self.step()
        if field.struct is not None:
            self.fields(field.struct, item)
            self.flush()
        elif field.element == "uuid":
            self.line(f"{self.out} += {self.codec('16s', 'pack')}({item})")
        else:
            self.variable(field, item)
        if len(self.lines) == start:
            self.line("pass")
        self.depth -= 1

    def tag_function(self, struct: Struct) -> str:
        """Return the name of the function that writes the tag section of a struct with known tags."""
        name = f"tags_{struct.name}"
        if name in self.functions:
            return name
        self.functions[name] = []
        outer = (self.lines, self.depth, self.pending, self.out, self.in_steps)
        self.lines, self.depth, self.pending, self.in_steps = self.functions[name], 0, [], False
        self.line(f"def {name}(o, out):")
        self.depth = 1
        self.line("count = 0")
        self.line("section = bytearray()")
        for field in self.tagged_fields(struct):
            value = f"o.{field.name}"
            self.line(f"if {self.differs(field, value)}:")
            self.depth = 2
            self.line("count += 1")
            self.line("t = bytearray()")
            self.out = "t"
            self.field(struct, field, value)
            self.flush()
            self.line(f"write_uvarint(section, {field.tag})")
            self.line("write_uvarint(section, len(t))")
            self.line("section += t")
            self.depth = 1
        self.line("write_uvarint(out, count)")
        self.line("out += section")
        self.lines, self.depth, self.pending, self.out, self.in_steps = outer
        return name
