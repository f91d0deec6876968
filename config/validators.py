"""The restrictions of a setting's value beyond its type, as the validators of Apache Kafka's ConfigDef.

A validator sees the typed value. Its ``legal`` text stands behind "must be" in error messages.
"""

from __future__ import annotations

from collections.abc import Callable

ConfigValue = bool | int | float | str | list[str] | None

_TYPES_IN_WORDS = {
    "boolean": "true or false",
    "short": "a whole number (short)",
    "int": "a whole number (int)",
    "long": "a whole number (long)",
    "double": "a number",
    "list": "a comma-separated list",
    "class": "a class name",
}


class Validator:
    """Accept every value of the type."""

    __slots__ = ()

    def accepts(self, value: ConfigValue) -> bool:
        """Return whether a typed value is legal."""
        return True

    def legal(self, type: str) -> str:
        """Return the legal values of a setting of this type in words."""
        return _TYPES_IN_WORDS.get(type, "a text")


class Range(Validator):
    """Accept the numbers from ``minimum`` to ``maximum`` and the single numbers of ``also``."""

    __slots__ = ("also", "maximum", "minimum")

    def __init__(self, minimum: int | float, maximum: int | float | None, also: tuple[int, ...]) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.also = also

    def accepts(self, value: ConfigValue) -> bool:
        if not isinstance(value, (int, float)):
            return False
        too_large = self.maximum is not None and value > self.maximum
        return value in self.also or not (value < self.minimum or too_large)

    def legal(self, type: str) -> str:
        bounds = f", at least {self.minimum}" if self.maximum is None else f" from {self.minimum} to {self.maximum}"
        return super().legal(type) + bounds + "".join(f", or {value}" for value in self.also)


class Choices(Validator):
    """Accept a text of ``choices``, or a list whose elements are all among them."""

    __slots__ = ("choices",)

    def __init__(self, choices: tuple[str, ...]) -> None:
        self.choices = choices

    def accepts(self, value: ConfigValue) -> bool:
        return all(one in self.choices for one in (value if isinstance(value, list) else [value]))

    def legal(self, type: str) -> str:
        names = ", ".join(self.choices)
        return f"a comma-separated list of {names}" if type == "list" else f"one of {names}"


class Form(Validator):
    """Accept the values for which ``check`` is true; ``words`` describe them."""

    __slots__ = ("_check", "_words")

    def __init__(self, check: Callable[[ConfigValue], bool], words: str) -> None:
        self._check = check
        self._words = words

    def accepts(self, value: ConfigValue) -> bool:
        return self._check(value)

    def legal(self, type: str) -> str:
        return self._words


ANY_VALUE = Validator()


def at_least(minimum: int | float, *, also: tuple[int, ...] = ()) -> Range:
    """Return the validator of numbers that have a lower limit only."""
    return Range(minimum, None, also)


def between(minimum: int | float, maximum: int | float, *, also: tuple[int, ...] = ()) -> Range:
    """Return the validator of numbers with two limits, both of them legal values."""
    return Range(minimum, maximum, also)


def one_of(*choices: str) -> Choices:
    """Return the validator of texts, or lists of texts, from a fixed set."""
    return Choices(choices)
