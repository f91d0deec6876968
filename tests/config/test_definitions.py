"""Reading and showing single values, as Apache Kafka's ConfigDef does."""

from __future__ import annotations

import random

import pytest

from gregor.config.definitions import ConfigDef, ConfigError, java_double_text
from gregor.config.validators import ANY_VALUE, ConfigValue, Validator, at_least, between, one_of


def definition(type: str, validator: Validator = ANY_VALUE) -> ConfigDef:
    return ConfigDef("some.key", type, None, "", validator=validator)


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        ("boolean", "true", True),
        ("boolean", " FALSE ", False),
        ("int", "5", 5),
        ("int", " +5 ", 5),
        ("int", "-2147483648", -(2**31)),
        ("int", "-" + "0" * 5000 + "7", -7),
        ("int", "0" * 5000, 0),
        ("short", "32767", 32767),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", "0.5", 0.5),
        ("double", "1e-3", 0.001),
        ("double", "0.30d", 0.3),
        ("double", "1.f", 1.0),
        ("string", "  text ", "text"),
        ("list", "", []),
        ("list", "a, b ,c", ["a", "b", "c"]),
        ("list", "a,b,a", ["a", "b"]),
        ("class", "org.example.Thing", "org.example.Thing"),
        ("password", "secret", "secret"),
    ],
)
def test_legal_texts_are_parsed(type: str, text: str, value: ConfigValue) -> None:
    assert definition(type).parse(text) == value


@pytest.mark.parametrize(
    ("type", "text", "reason"),
    [
        ("boolean", "yes", "true or false"),
        ("boolean", "", "true or false"),
        ("int", "", "whole number"),
        ("int", "5.0", "whole number"),
        ("int", "5_0", "whole number"),
        ("int", "\u0665", "whole number"),
        ("int", "--5", "whole number"),
        ("int", "2147483648", "32-bit"),
        ("short", "32768", "16-bit"),
        ("long", "9" * 5000, "64-bit"),
        ("long", "-1" + "0" * 20, "64-bit"),
        ("long", "-9223372036854775809", "64-bit"),
        ("double", "half", "a number"),
        ("double", "1_0", "a number"),
        ("double", "", "a number"),
        ("list", "a,,b", "empty"),
        ("list", "a,", "empty"),
    ],
)
def test_texts_that_are_refused(type: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        definition(type).parse(text)
    assert str(caught.value).startswith(f"some.key={text}: ")
    assert (caught.value.key, caught.value.value) == ("some.key", text)


def test_ranges() -> None:
    level = definition("int", between(1, 9, also=(-1,)))
    assert [level.parse(text) for text in ("-1", "1", "9")] == [-1, 1, 9]
    for text in ("-2", "0", "10"):
        with pytest.raises(ConfigError, match="from 1 to 9, or -1"):
            level.parse(text)
    high = definition("long", at_least(14))
    assert high.parse("14") == 14
    with pytest.raises(ConfigError, match="at least 14"):
        high.parse("13")
    ratio = definition("double", between(0, 1))
    for text in ("-0.1", "1.1"):
        with pytest.raises(ConfigError, match="a number from 0 to 1"):
            ratio.parse(text)


def test_choices() -> None:
    one = definition("string", one_of("a", "b"))
    assert one.parse("b") == "b"
    for text in ("B", "c", ""):
        with pytest.raises(ConfigError, match="one of a, b"):
            one.parse(text)
    some = definition("list", one_of("a", "b"))
    assert [some.parse(text) for text in ("", "b", "b,a")] == [[], ["b"], ["b", "a"]]
    with pytest.raises(ConfigError, match="list of a, b"):
        some.parse("a,c")


def test_password_is_hidden_in_errors() -> None:
    secret = definition("password", one_of("x"))
    assert secret.sensitive
    with pytest.raises(ConfigError) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        ("boolean", True, "true"),
        ("boolean", False, "false"),
        ("int", 7, "7"),
        ("list", ["a", "b"], "a,b"),
        ("list", [], ""),
        ("double", 0.5, "0.5"),
        ("string", "x", "x"),
        ("string", None, None),
    ],
)
def test_values_as_texts(type: str, value: ConfigValue, text: str | None) -> None:
    assert definition(type).format(value) == text
    if text is not None:
        assert definition(type).parse(text) == value


# The texts are those of Java's Double.toString.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (1.234e-4, "1.234E-4"),
        (1e-5, "1.0E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-2.5e10, "-2.5E10"),
        (1e22, "1.0E22"),
        (1e23, "1.0E23"),  # the nearest double lies below it
        (9.999999999999997e22, "9.999999999999997E22"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "5.0E-324"),  # JDK 19 and later; before, 4.9E-324
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_are_formatted_as_in_java(value: float, text: str) -> None:
    assert java_double_text(value) == text


def test_doubles_read_back_as_they_were() -> None:
    chance = random.Random(7)
    for _ in range(5000):
        for value in (chance.uniform(-1e12, 1e12), float(f"{chance.randint(1, 999)}e{chance.randint(-300, 300)}")):
            assert float(java_double_text(value)) == value
