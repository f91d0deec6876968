"""The language of the schema files: messages, structs and fields, for all versions at once.

A version range is text as in Kafka's own message definitions: "3+", "0-12", "7", or "none". A range describes the
history of a field and may begin before the oldest version of the message; only the part inside the versions of the
message counts. A schema that contradicts itself raises SchemaError when its module is imported, so that a typing error
cannot reach the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# struct format letter (big-endian) of every fixed-size type.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
VARIABLE = frozenset({"string", "bytes", "records"})

_ZERO_VALUES: dict[str, Any] = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), 0),
    "bool": False,
    "float64": 0.0,
    "uuid": bytes(16),
    "string": "",
    "bytes": b"",
    "records": None,
}
_VALUE_TYPES = {"bool": bool, "float64": float, "uuid": bytes, "string": str, "bytes": bytes}


class SchemaError(Exception):
    """A schema file contradicts itself."""


class Versions:
    """A closed range of versions; `last` is None if it has no end, and `Versions.NONE` is empty."""

    __slots__ = ("first", "last")
    NONE: Versions

    def __init__(self, first: int, last: int | None) -> None:
        self.first = first
        self.last = last

    @classmethod
    def parse(cls, text: str) -> Versions:
        known = _PARSED.get(text)
        if known is not None:
            return known
        first, dash, last = text.partition("-")
        try:
            if dash:
                parsed = cls(int(first), int(last))
            elif text.endswith("+"):
                parsed = cls(int(text[:-1]), None)
            else:
                parsed = cls(int(text), int(text))
        except ValueError:
            raise SchemaError(f"not a version range: {text!r}") from None
        if parsed.first < 0 or (parsed.last is not None and parsed.last < parsed.first):
            raise SchemaError(f"not a version range: {text!r}")
        _PARSED[text] = parsed
        return parsed

    def __contains__(self, version: int) -> bool:
        return self.first <= version and (self.last is None or version <= self.last)

    def __iter__(self) -> Iterator[int]:
        if self.last is None:
            raise SchemaError(f"{self} has no end")
        return iter(range(self.first, self.last + 1))

    def meets(self, other: Versions) -> bool:
        return self.within(other) is not Versions.NONE

    def within(self, other: Versions) -> Versions:
        """Return the range of the versions that are in both ranges."""
        first = max(self.first, other.first)
        last = self.last if other.last is None else other.last if self.last is None else min(self.last, other.last)
        return Versions.NONE if last is not None and last < first else Versions(first, last)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Versions) and (self.first, self.last) == (other.first, other.last)

    def __hash__(self) -> int:
        return hash((self.first, self.last))

    def __repr__(self) -> str:
        if self is Versions.NONE:
            return "none"
        if self.last is None:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


_PARSED: dict[str, Versions] = {}
Versions.NONE = _PARSED["none"] = Versions(1, 0)

_UNSET: Any = object()


class Field:
    """One field.

    `type` is a fixed-size type, "string", "bytes", "records", the name of a struct, or "[]" and one of these. A struct
    is defined by `fields`, or among the message's `structs` if several fields share it. `nullable` and `tagged`
    are the versions in which it may be null and in which it is encoded in the tag section under number `tag`: with a
    tag all of its versions, else none. `ignorable`: encoding to a version without the field drops a value instead of
    refusing it.
    """

    flexible = Versions.parse("0+")
    """The versions in which the field has the compact form, if the message is flexible in them."""

    __slots__ = (
        "default",
        "element",
        "help",
        "ignorable",
        "is_array",
        "name",
        "nullable",
        "own_struct",
        "struct",
        "tag",
        "tagged",
        "type",
        "versions",
    )

    def __init__(
        self,
        name: str,
        type: str,
        versions: str = "0+",
        *,
        help: str,
        nullable: str = "none",
        default: Any = _UNSET,
        tag: int | None = None,
        ignorable: bool = False,
        fields: Sequence[Field] = (),
    ) -> None:
        self.name = name
        self.type = type
        self.is_array = type.startswith("[]")
        self.element = type[2:] if self.is_array else type
        self.versions = Versions.parse(versions)
        self.nullable = Versions.parse(nullable)
        self.tag = tag
        self.tagged = Versions.NONE if tag is None else self.versions
        self.ignorable = ignorable
        self.help = help
        self.own_struct = Struct(self.element, fields, versions=versions) if fields else None
        self.struct: Struct | None = None
        """Resolved by the message: only that knows the structs that several fields share."""
        self.default = default
        if not name.isidentifier() or name != name.lower() or name.startswith("_"):
            raise SchemaError(f"{name!r} is not a field name")
        if not help:
            raise SchemaError(f"{name}: a field needs its line of help")
        if self.nullable is not Versions.NONE and not self.is_array and self.element in FIXED:
            raise SchemaError(f"{name}: a {type} cannot be null")
        self._complete_default()

    @property
    def is_struct(self) -> bool:
        return not (self.element in FIXED or self.element in VARIABLE)

    def resolve(self, struct: Struct) -> None:
        """Bind the field of a struct type to that struct."""
        self.struct = struct

    def _complete_default(self) -> None:
        """Turn an absent default into the type's own: 0, "", no elements, a struct of defaults (as `()`)."""
        if self.default is _UNSET:
            self.default = () if self.is_array or self.is_struct else _ZERO_VALUES[self.element]
        elif self.default is None:
            if self.nullable is Versions.NONE and self.element != "records":
                raise SchemaError(f"{self.name}: null by default, yet never nullable")
        elif self.is_array or self.is_struct or self.element == "records":
            raise SchemaError(f"{self.name}: a {self.type} has no default but null")
        elif type(self.default) is not _VALUE_TYPES.get(self.element, int):
            raise SchemaError(f"{self.name}: {self.default!r} is not a {self.type}")


class NeverCompactField(Field):
    """A field that keeps the lengths of the old encoding in flexible versions, too."""

    __slots__ = ()
    flexible = Versions.NONE


class Struct:
    """A named group of fields."""

    __slots__ = ("fields", "name", "versions")

    def __init__(self, name: str, fields: Sequence[Field], *, versions: str = "0+") -> None:
        self.name = name
        self.fields = tuple(fields)
        self.versions = Versions.parse(versions)
        if not name.isidentifier() or not name[0].isupper():
            raise SchemaError(f"{name!r} is not a struct name")
        if len({field.name for field in fields}) != len(fields):
            raise SchemaError(f"{name}: two fields of one name")


class Message(Struct):
    """A request, a response, a header or a record: one class, encoded in the closed range `versions`.

    `flexible` are the versions with compact lengths and a tag section at the end of each struct (KIP-482).
    """

    __slots__ = ("api_key", "flexible", "structs")

    def __init__(
        self,
        name: str,
        fields: Sequence[Field],
        *,
        versions: str,
        flexible: str = "none",
        api_key: int | None = None,
        structs: Sequence[Struct] = (),
    ) -> None:
        super().__init__(name, fields, versions=versions)
        if self.versions.last is None:
            raise SchemaError(f"{name}: the newest version is missing")
        self.api_key = api_key
        self.flexible = Versions.parse(flexible)
        # Every struct below the message, inner ones first.
        self.structs: tuple[Struct, ...] = ()
        shared = {struct.name: struct for struct in structs}
        found: dict[str, Struct] = {}
        self._check(self, self.versions, shared, found)
        self.structs = tuple(found.values())
        if len(shared) != len(structs) or not found.keys() >= shared.keys():
            raise SchemaError(f"{name}: a shared struct is unused or defined twice")

    def _check(self, struct: Struct, versions: Versions, shared: dict[str, Struct], found: dict[str, Struct]) -> None:
        for field in struct.fields:
            where = f"{self.name}.{struct.name}.{field.name}"
            inside = field.versions.within(versions)
            if inside is Versions.NONE:
                raise SchemaError(f"{where}: versions {field.versions} lie outside of {versions}")
            last = self.versions.last
            if field.versions.last is not None and last is not None and field.versions.last > last:
                raise SchemaError(f"{where}: versions {field.versions} end after the message's {self.versions}")
            if field.nullable is not Versions.NONE and not field.nullable.meets(inside):
                raise SchemaError(f"{where}: nullable in versions {field.nullable}, which it does not have")
            if field.tagged is not Versions.NONE:
                tagged = field.tagged.within(inside)
                if tagged is Versions.NONE or self.flexible.within(tagged) != tagged:
                    raise SchemaError(f"{where}: tagged in {field.tagged}, which are not flexible versions of its own")
            if field.is_struct:
                self._check_struct(field, where, inside, shared, found)
        self._check_tags(struct, versions)

    def _check_struct(
        self, field: Field, where: str, versions: Versions, shared: dict[str, Struct], found: dict[str, Struct]
    ) -> None:
        child = field.own_struct
        if child is None:
            child = shared.get(field.element)
            if child is None:
                raise SchemaError(f"{where}: unknown type {field.type}")
            # A shared struct is checked against all versions of the message: its users differ.
            versions = child.versions.within(self.versions)
        elif field.element in shared or field.element in found:
            raise SchemaError(f"{where}: a second struct {field.element}")
        field.resolve(child)
        if child.name not in found:
            self._check(child, versions, shared, found)
            found[child.name] = child

    def _check_tags(self, struct: Struct, versions: Versions) -> None:
        if all(field.tag is None for field in struct.fields):
            return
        for version in versions.within(self.versions):
            tags = [field.tag for field in struct.fields if version in field.versions and version in field.tagged]
            if len(set(tags)) != len(tags):
                raise SchemaError(f"{self.name}.{struct.name}: version {version} has one tag twice: {tags}")
