"""The definition of one setting: name, type, default, legal values, and how its text is parsed and formatted.

Types and parsing follow ``org.apache.kafka.common.config.ConfigDef``: gregor accepts and refuses the same values as
Apache Kafka.
"""

from __future__ import annotations

from gregor.config.validators import ANY_VALUE, ConfigValue, Validator

READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"

LISTED = "listed"
INTERNAL = "internal"
RETIRED = "retired"

SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

_WIDTH_BITS = {"short": 16, "int": 32, "long": 64}


class ConfigError(ValueError):
    """A setting is refused. ``str()`` names the key, the value and the legal values."""

    def __init__(self, key: str, value: object, message: str) -> None:
        super().__init__(f"{key}={value}: {message}")
        self.key = key
        self.value = value
        self.message = message


class ConfigDef:
    """One row of a table of settings.

    ``type`` is one of boolean, int, long, short, double, string, list, class, password; ``validator`` restricts the
    values of that type. ``dynamic`` is READ_ONLY, or states whether a running broker's setting is altered for one
    broker or for all of them. ``broker_synonyms`` (topic settings) are the broker keys whose value a topic without
    its own has, the first of highest rank. ``no_effect`` is the reason why a setting changes nothing here: it is
    checked, kept and described all the same. ``visibility`` is LISTED, or INTERNAL or RETIRED (Apache Kafka 4 has
    removed it): these two are described only where they are set.
    """

    __slots__ = (
        "broker_synonyms",
        "default",
        "dynamic",
        "help",
        "key",
        "no_effect",
        "type",
        "validator",
        "visibility",
    )

    def __init__(
        self,
        key: str,
        type: str,
        default: ConfigValue,
        help: str,
        validator: Validator = ANY_VALUE,
        *,
        dynamic: str = READ_ONLY,
        broker_synonyms: tuple[str, ...] = (),
        visibility: str = LISTED,
        no_effect: str = "",
    ) -> None:
        self.key = key
        self.type = type
        self.default = default
        self.help = help
        self.validator = validator
        self.dynamic = dynamic
        self.broker_synonyms = broker_synonyms
        self.visibility = visibility
        self.no_effect = no_effect

    @property
    def documentation(self) -> str:
        """Return the help that clients are shown, with the reason why a setting changes nothing."""
        return f"{self.help} Without effect here: {self.no_effect}." if self.no_effect else self.help

    @property
    def sensitive(self) -> bool:
        """Return whether the value is a secret: it is described as null."""
        return self.type == "password"

    def parse(self, text: str) -> ConfigValue:
        """Return the typed value of a text; raise ConfigError, which names the legal values."""
        value = self._typed(text)
        if not self.validator.accepts(value):
            raise self._illegal(text)
        return value

    def format(self, value: ConfigValue) -> str | None:
        """Return the text that describes a typed value to a client; ``parse`` returns the value again."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(value)
        if isinstance(value, float):
            return java_double_text(value)
        return str(value)

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

    def _must(self) -> str:
        return f"must be {self.validator.legal(self.type)}"

    def _illegal(self, text: str) -> ConfigError:
        return ConfigError(self.key, "(hidden)" if self.sensitive else text, self._must())


def java_double_text(value: float) -> str:
    """Return the text of Java's ``Double.toString``: 0.001 to below 1E7 as digits, other numbers like 1.5E10.

    Clients compare these texts.
    """
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
