"""Writes the decoder of one (message, version): a flat Python function over a buffer and a position.

Rules of the generated code:
- Neighbouring fixed-size fields become one struct call, together with the length that follows them: the int16 or int32
  of the old form, or the first byte of a compact length (the rest of a long one is read by a call).
- Slots are set directly on bare objects: the class's own `__init__` would cost a keyword call per struct.
- `p` is the position, `limit` the end of the buffer, `n` the length just read, `e` the end of its field. Slices past
  the end of a buffer raise no error, so every length is compared with `limit` before; an index or a struct call past
  the end raises IndexError or struct.error, which become a MalformedMessage at the end of the function.
- Memory is not allocated by a claimed count: a count whose smallest elements exceed the bytes left is refused before.
"""

from __future__ import annotations

from struct import calcsize
from typing import Any

from gregor.protocol.codec.model import FIXED, FIXED_SIZES, Field, Message, Struct
from gregor.protocol.codec.primitives import MAX_STRING_BYTES
from gregor.protocol.codec.source import NUMBERS_PER_STEP, Source


def build_decoder(
    message: Message, version: int, classes: dict[str, type], defaults: dict[str, object], *, in_steps: bool = False
) -> Any:
    """Return a function (buffer, position) -> (message, end position), or with `in_steps` a generator that returns
    it."""
    return _DecoderSource(message, version, classes, defaults, in_steps).build()


class _DecoderSource(Source):
    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        # Fixed-size values that one struct call will read: (format, assignment target).
        self.pending: list[tuple[str, str]] = []

    def build(self) -> Any:
        self.begin("def decode(buf, p):")
        self.line("limit = len(buf)")
        self.line(f"m = new({self.message.name})")
        self.fields(self.message, "m")
        self.line("return m, p")
        self.handle(
            "except DECODING_ERRORS as error:", f"    malformed({f'{self.message.name} v{self.version}'!r}, error)"
        )
        return self.execute("decode")

    def fields(self, struct: Struct, target: str) -> None:
        """Read all fields of a struct into the slots of the new object `target`. If flexible, none stays pending."""
        for field in struct.fields:
            if not self.has(field) or self.is_tagged(field):
                self.line(f"{target}.{field.name} = {self.default(field)}")
        for field in struct.fields:
            if self.has(field) and not self.is_tagged(field):
                self.field(struct, field, f"{target}.{field.name}")
        if self.flexible:
            self.pending.append(("B", "n"))
            self.flush()
            self.line("if n:")
            if self.tagged_fields(struct):
                self.line(f"    p = {self.tag_function(struct)}(buf, p, n, limit, {target})")
            else:
                self.line("    p = skip_tags(buf, p, n, limit)")
        elif struct is self.message:
            self.flush()

    def default(self, field: Field) -> str:
        if field.default is None:
            return "None"
        if field.is_array:
            return "[]"
        if field.struct is not None:
            return self.default_struct(field.struct)
        return "ZERO_UUID" if field.default == bytes(16) and field.element == "uuid" else repr(field.default)

    def flush(self) -> None:
        if not self.pending:
            return
        format = "".join(letter for letter, _ in self.pending)
        targets = ", ".join(target for _, target in self.pending)
        self.pending.clear()
        if format == "B":
            self.line(f"{targets} = buf[p]")
            self.line("p += 1")
            return
        self.line(f"{targets}{',' if ', ' not in targets else ''} = {self.codec(format, 'unpack_from')}(buf, p)")
        self.line(f"p += {calcsize('>' + format)}")

    def field(self, struct: Struct, field: Field, target: str) -> None:
        where = self.where(struct, field)
        if field.is_array:
            self.array(field, target, where)
        elif field.struct is not None:
            self.nested(field, field.struct, target)
        elif field.element in FIXED:
            self.pending.append((FIXED[field.element], target))
        else:
            self.variable(field, target, where, self.is_nullable(field))

    def nested(self, field: Field, struct: Struct, target: str) -> None:
        inner = self.fresh("o")
        if not self.is_nullable(field):
            self.line(f"{inner} = {target} = new({struct.name})")
            self.fields(struct, inner)
            return
        # KIP-893: a signed byte before a nullable struct, negative for null; in a tag it is 0 for null.
        self.pending.append(("b", "n"))
        self.flush()
        self.line("if n <= 0:" if self.is_tagged(field) else "if n < 0:")
        self.line(f"    {target} = None")
        self.line("else:")
        self.depth += 1
        self.line(f"{inner} = {target} = new({struct.name})")
        self.fields(struct, inner)
        self.flush()
        self.depth -= 1

    def length(self, field: Field, letter: str, *, rest_check: str = "") -> None:
        """Read a length into `n`; in compact form it is still one larger."""
        if not self.is_compact(field):
            self.pending.append((letter, "n"))
            self.flush()
            return
        self.pending.append(("B", "n"))
        self.flush()
        self.line("if n > 127:")
        self.line("    n, p = read_uvarint_rest(buf, p, n)")
        if rest_check:
            self.line(f"    {rest_check}")

    def variable(self, field: Field, target: str, where: str, nullable: bool) -> None:
        """Read a string, bytes or records."""
        is_string = field.element == "string"
        compact = self.is_compact(field)
        too_long = f"if n > {MAX_STRING_BYTES + 1}: raise bad_length({where}, n - 1)" if is_string and compact else ""
        self.length(field, "h" if is_string else "i", rest_check=too_long)
        null, end, length = ("n == 0", "p + n - 1", "n - 1") if compact else ("n < 0", "p + n", "n")
        if nullable:
            self.line(f"if {null if compact else 'n == -1'}:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.depth += 1
        self.line(f"e = {end}")
        self.line(f"if e > limit{'' if nullable and compact else f' or {null}'}:")
        self.line(f"    raise bad_length({where}, {length})")
        if is_string:
            self.line(f'{target} = str(buf[p:e], "utf-8")')
        elif field.element == "bytes":
            self.line(f"{target} = bytes(buf[p:e])")
        else:
            self.line(f"{target} = view_of(buf)[p:e]")
        self.line("p = e")
        if nullable:
            self.depth -= 1

    def array(self, field: Field, target: str, where: str) -> None:
        self.length(field, "i")
        compact = self.is_compact(field)
        if self.is_nullable(field):
            self.line(f"if {'n == 0' if compact else 'n == -1'}:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.depth += 1
        if compact:
            self.line("n -= 1")
        smallest = self.min_element_bytes(field)
        self.line(f"if n < 0 or n{f' * {smallest}' if smallest > 1 else ''} > limit - p:")
        self.line(f"    raise bad_count({where}, n, limit - p)")
        if field.element in FIXED and field.element != "uuid":
            size_bytes = FIXED_SIZES[field.element]
            self.numbers(FIXED[field.element], size_bytes, target)
        else:
            self.elements(field, target, where)
        if self.is_nullable(field):
            self.depth -= 1

    def numbers(self, letter: str, size_bytes: int, target: str) -> None:
        """Read the `n` elements of an array of plain numbers."""
        if self.in_steps:
            self.line(f"a = {target} = []")
            self.line(f"while n > {NUMBERS_PER_STEP}:")
            self.line(f'    a += unpack_from(">{NUMBERS_PER_STEP}{letter}", buf, p)')
            self.line(f"    p += {NUMBERS_PER_STEP * size_bytes}")
            self.line(f"    n -= {NUMBERS_PER_STEP}")
            self.line("    yield")
            self.line(f'a += unpack_from(f">{{n}}{letter}", buf, p)')
            self.line(f"p += {size_bytes} * n")
            return
        self.line("if n:")
        self.line(f'    {target} = list(unpack_from(f">{{n}}{letter}", buf, p))')
        self.line(f"    p += {'n' if size_bytes == 1 else f'{size_bytes} * n'}")
        self.line("else:")
        self.line(f"    {target} = []")

    def elements(self, field: Field, target: str, where: str) -> None:
        """Read the `n` elements of an array that needs a loop."""
        items = self.fresh("a")
        item = self.fresh("o")
        self.line(f"{items} = {target} = []")
        self.line("for _ in range(n):")
        self.depth += 1
        self.step()
        if field.struct is not None:
            self.line(f"{item} = new({field.struct.name})")
            self.line(f"{items}.append({item})")
            self.fields(field.struct, item)
            self.flush()
        elif field.element == "uuid":
            self.line(f"{items}.append(bytes(buf[p:p + 16]))")
            self.line("p += 16")
        else:
            self.variable(field, item, where, False)
            self.line(f"{items}.append({item})")
        self.depth -= 1

    def tag_function(self, struct: Struct) -> str:
        """Return the name of the function that reads a non-empty tag section of a struct with known tags."""
        name = f"tags_{struct.name}"
        if name in self.functions:
            return name
        self.functions[name] = []
        outer = (self.lines, self.depth, self.pending, self.in_steps)
        self.lines, self.depth, self.pending, self.in_steps = self.functions[name], 0, [], False
        self.line(f"def {name}(buf, p, count, limit, o):")
        self.depth = 1
        self.line("if count > 127:")
        self.line("    count, p = read_uvarint_rest(buf, p, count)")
        self.line("if count * 2 > limit - p:")
        self.line('    raise bad_count("tags", count, limit - p)')
        self.line("for _ in range(count):")
        self.depth = 2
        self.line("tag, p = read_uvarint(buf, p)")
        self.line("size, p = read_uvarint(buf, p)")
        self.line("end = p + size")
        self.line("if end > limit:")
        self.line('    raise bad_length("a tag", size)')
        for field in self.tagged_fields(struct):
            self.line(f"if tag == {field.tag}:")
            self.depth = 3
            self.field(struct, field, f"o.{field.name}")
            self.flush()
            self.line("if p != end:")
            self.line(f"    raise bad_tag({self.where(struct, field)})")
            self.line("continue")
            self.depth = 2
        self.line("p = end")
        self.depth = 1
        self.line("return p")
        self.lines, self.depth, self.pending, self.in_steps = outer
        return name
