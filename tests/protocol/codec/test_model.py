"""gregor.protocol.codec.model: version ranges, and the errors of a schema."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.protocol.codec.model import Field, Message, SchemaError, Struct, Versions


def field(name: str = "a", type: str = "int32", versions: str = "0+", **more: object) -> Field:
    return Field(name, type, versions, help="Help.", **more)  # type: ignore[arg-type]


def message(*fields: Field, versions: str = "0-5", flexible: str = "3+", structs: tuple[Struct, ...] = ()) -> Message:
    return Message("TestRequest", list(fields), versions=versions, flexible=flexible, structs=structs)


class TestVersions:
    @pytest.mark.parametrize("text", ["3+", "0-12", "7", "none", "0+"])
    def test_text_there_and_back(self, text: str) -> None:
        assert repr(Versions.parse(text)) == text

    @pytest.mark.parametrize("text", ["", "+", "3-", "5-3", "-1", "a", "1,3", "3++"])
    def test_bad_text(self, text: str) -> None:
        with pytest.raises(SchemaError, match="version range"):
            Versions.parse(text)

    RANGES = st.one_of(
        st.just("none"),
        st.integers(0, 6).map(lambda first: f"{first}+"),
        st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda ends: f"{min(ends)}-{max(ends)}"),
    ).map(Versions.parse)

    @given(RANGES, RANGES)
    def test_operations_equal_those_on_sets(self, one: Versions, other: Versions) -> None:
        ones, others = ({version for version in range(20) if version in versions} for versions in (one, other))
        assert one.meets(other) == bool(ones & others)
        assert {version for version in range(20) if version in one.within(other)} == ones & others

    def test_iteration(self) -> None:
        assert list(Versions.parse("2-4")) == [2, 3, 4]
        assert list(Versions.NONE) == []
        with pytest.raises(SchemaError, match="no end"):
            iter(Versions.parse("2+"))


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: field("camelCase"), "not a field name"),
        (lambda: Field("a", "int32", help=""), "help"),
        (lambda: field(nullable="0+"), "cannot be null"),
        (lambda: field(default="x"), "is not a int32"),
        (lambda: field(default=True), "is not a int32"),
        (lambda: field(type="string", default=None), "never nullable"),
        (lambda: field(type="[]int32", default=()), "no default but null"),
        (lambda: Struct("lower", [field()]), "not a struct name"),
        (lambda: Struct("A", [field(), field()]), "two fields"),
        (lambda: message(field(), versions="0+"), "newest version is missing"),
        (lambda: message(field(versions="6+")), "lie outside"),
        (lambda: message(field(versions="2-6")), "end after"),
        (lambda: message(field(type="string", versions="0-2", nullable="3+")), "which it does not have"),
        (lambda: message(field(tag=0)), "not flexible versions"),
        (lambda: message(field(versions="2+", tag=0)), "not flexible versions"),
        (
            lambda: message(field("a", versions="3+", tag=0), field("b", versions="4+", tag=0)),
            "version 4 has one tag twice",
        ),
        (lambda: message(field(type="[]Missing")), "unknown type"),
        (lambda: message(field(type="in32")), "unknown type"),
        (
            lambda: message(field("a", "[]S", fields=[field()]), field("b", "[]S", fields=[field()])),
            "a second struct S",
        ),
        (lambda: message(field(), structs=(Struct("S", [field()]),)), "unused"),
        (lambda: message(field("a", "S", "0-2", fields=[field("b", versions="3+")])), "lie outside of 0-2"),
    ],
)
def test_bad_schema_is_refused(build: Callable[[], object], complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        build()


def test_tag_may_be_used_again_when_its_field_has_ended() -> None:
    fields = [field("a", versions="3-4", tag=0), field("b", versions="5+", tag=0)]
    assert [made.tag for made in message(*fields).fields] == [0, 0]


def test_structs_are_listed_from_the_inside_out() -> None:
    inner = field("inner", "[]Inner", fields=[field()])
    shared = Struct("Shared", [inner])
    made = message(field("a", "Shared"), field("b", "[]Shared"), structs=(shared,))
    assert [struct.name for struct in made.structs] == ["Inner", "Shared"]
    assert made.fields[0].struct is made.fields[1].struct is shared


def test_absent_default_is_that_of_the_type() -> None:
    kinds = ["int8", "bool", "string", "bytes", "uuid", "records", "[]int32", "float64"]
    assert [field(type=kind).default for kind in kinds] == [0, False, "", b"", bytes(16), None, (), 0.0]
