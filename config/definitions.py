"""What one setting is: its name, type, default, legal range, and how its text is read and shown.

Types and the reading of text follow ``org.apache.kafka.common.config.ConfigDef``, so that a value Apache Kafka takes is
taken here and one it refuses is refused.
"""

from __future__ import annotations

from collections.abc import Callable

ConfigValue = bool | int | float | str | list[str] | None

READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

_WIDTH_BITS = {"short": 16, "int": 32, "long": 64}


class ConfigError(ValueError):
    """A setting that cannot be taken. ``str()`` names the key, the value and what would be legal."""

    def __init__(self, key: str, value: object, message: str) -> None:
        super().__init__(f"{key}={value}: {message}")
        self.key = key
        self.value = value
        self.message = message


class ConfigDef:
    """One row of a table of settings.

    ``type`` is one of boolean, int, long, short, double, string, list, class, password. ``minimum`` and ``maximum``
    bound a number, except that the values in ``also`` are legal outside of them. ``choices`` bounds a string, or each
    element of a list. ``dynamic`` says whether a running broker's setting may be altered, and for whom.
    ``broker_synonyms`` (topic settings) are the broker keys that a topic without its own value takes it from, the first
    of highest rank. ``no_effect`` is the reason why a setting changes nothing here: it is checked, kept and shown all
    the same. ``internal`` and ``retired`` ones (Apache Kafka 4 dropped these) are shown only where somebody set them.
    """

    __slots__ = (
        "also",
        "broker_synonyms",
        "check",
        "choices",
        "default",
        "dynamic",
        "help",
        "internal",
        "key",
        "maximum",
        "minimum",
        "no_effect",
        "retired",
        "type",
    )

    def __init__(
        self,
        key: str,
        type: str,
        default: ConfigValue,
        help: str,
        *,
        minimum: int | float | None = None,
        maximum: int | float | None = None,
        also: tuple[int, ...] = (),
        choices: tuple[str, ...] = (),
        check: Callable[[str], str | None] | None = None,
        dynamic: str = READ_ONLY,
        broker_synonyms: tuple[str, ...] = (),
        internal: bool = False,
        no_effect: str = "",
        retired: bool = False,
    ) -> None:
        self.key = key
        self.type = type
        self.default = default
        self.help = help
        self.minimum = minimum
        self.maximum = maximum
        self.also = also
        self.choices = choices
        self.check = check
        self.dynamic = dynamic
        self.broker_synonyms = broker_synonyms
        self.internal = internal
        self.no_effect = no_effect
        self.retired = retired

    @property
    def documentation(self) -> str:
        """The help that clients are shown; it says so where a setting changes nothing."""
        return f"{self.help} Without effect here: {self.no_effect}." if self.no_effect else self.help

    @property
    def sensitive(self) -> bool:
        """Never shown to anybody: its value is described as null."""
        return self.type == "password"

    def parse(self, text: str) -> ConfigValue:
        """The typed value of a text; ConfigError names the legal range."""
        value = self._typed(text)
        self._check_range(value, text)
        if self.check is not None and (problem := self.check(text.strip())) is not None:
            raise ConfigError(self.key, text, problem)
        return value

    def format(self, value: ConfigValue) -> str | None:
        """The text that describes a typed value to a client; ``parse`` reads it back."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(value)
        if isinstance(value, float):
            return java_double_text(value)
        return str(value)

    def legal(self) -> str:
        """The legal values in words, for error messages and help."""
        if self.type == "boolean":
            return "true or false"
        if self.choices:
            names = ", ".join(self.choices)
            return f"a comma-separated list of {names}" if self.type == "list" else f"one of {names}"
        if self.type in _WIDTH_BITS or self.type == "double":
            kind = "a number" if self.type == "double" else f"a whole number ({self.type})"
            extra = "".join(f", or {value}" for value in self.also)
            low, high = self.minimum, self.maximum
            if high is None:
                return kind + extra if low is None else f"{kind}, at least {low}{extra}"
            return f"{kind} from {low} to {high}{extra}"
        return {"list": "a comma-separated list", "class": "a class name"}.get(self.type, "a text")

    def _typed(self, text: str) -> ConfigValue:
        text = text.strip()
        kind = self.type
        if kind == "boolean":
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise self._illegal(text)
            return lowered == "true"
        if kind in _WIDTH_BITS:
            digits = text[1:] if text[:1] in ("+", "-") else text
            if not (digits.isascii() and digits.isdigit()):
                raise self._illegal(text)
            # 20 digits fit no type already, and int() refuses thousands of them.
            number = int(digits.lstrip("0")[:20] or "0") * (-1 if text[0] == "-" else 1)
            limit = 1 << (_WIDTH_BITS[kind] - 1)
            if not -limit <= number < limit:
                raise ConfigError(self.key, text, f"does not fit a {_WIDTH_BITS[kind]}-bit number; {self._must()}")
            return number
        if kind == "double":
            try:
                if "_" in text:
                    raise ValueError
                return float(text.rstrip("dDfF") if text[-2:-1].isdigit() or text[-2:-1] == "." else text)
            except ValueError:
                raise self._illegal(text) from None
        if kind == "list":
            # Apache Kafka 4 refuses empty elements and drops repeated ones (KIP-1161).
            elements = [part.strip() for part in text.split(",")] if text else []
            if "" in elements:
                raise ConfigError(self.key, text, f"an element of the list is empty; {self._must()}")
            return list(dict.fromkeys(elements))
        return text

    def _check_range(self, value: ConfigValue, text: str) -> None:
        if self.choices:
            given = value if isinstance(value, list) else [value]
            if any(one not in self.choices for one in given):
                raise self._illegal(text)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and value not in self.also:
            low, high = self.minimum, self.maximum
            if (low is not None and value < low) or (high is not None and value > high):
                raise self._illegal(text)

    def _must(self) -> str:
        return f"must be {self.legal()}"

    def _illegal(self, text: str) -> ConfigError:
        return ConfigError(self.key, "(hidden)" if self.sensitive else text, self._must())


def java_double_text(value: float) -> str:
    """``Double.toString`` of Java: plain from 1e-3 to below 1e7, else like 1.5E10. Clients compare these texts."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    shortest = repr(value)  # the shortest digits that read back equal; only their layout differs from Java's
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return shortest
    mantissa, _, power = shortest.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = len(digits) - len(fraction) - 1 + int(power or 0)
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{exponent}"
