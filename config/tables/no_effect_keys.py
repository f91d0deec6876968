"""Broker settings of Apache Kafka 4.3.1 without effect here: checked, kept and described, each with a reason.

``no_effect.tsv`` has one per line: key, type, default, minimum, maximum, choices, ``dynamic``, whether it is internal,
the reason, help. ``null`` stands for no default. The file is read when the first of these settings is set or
described, so that a broker without them does not hold them in memory.
"""

from __future__ import annotations

import functools
from pathlib import Path

from gregor.config.definitions import INTERNAL, LISTED, ConfigDef
from gregor.config.validators import ANY_VALUE, Validator, at_least, between, one_of

NULL = "null"


@functools.cache
def keys_without_effect() -> dict[str, ConfigDef]:
    """Return the settings of the file by key."""
    lines = Path(__file__).with_name("no_effect.tsv").read_text("utf-8").splitlines()
    definitions = [_definition(*line.split("\t")) for line in lines if not line.startswith("#")]
    return {definition.key: definition for definition in definitions}


def _definition(
    key: str,
    type: str,
    default: str,
    minimum: str,
    maximum: str,
    choices: str,
    dynamic: str,
    internal: str,
    reason: str,
    help: str,
) -> ConfigDef:
    definition = ConfigDef(
        key,
        type,
        None,
        help,
        validator=_validator(minimum, maximum, choices),
        dynamic=dynamic,
        visibility=INTERNAL if internal else LISTED,
        no_effect=reason,
    )
    if default != NULL:
        definition.default = definition.parse(default)
    return definition


def _validator(minimum: str, maximum: str, choices: str) -> Validator:
    if choices:
        return one_of(*choices.split("|"))
    if not minimum:
        return ANY_VALUE
    return between(_number(minimum), _number(maximum)) if maximum else at_least(_number(minimum))


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)
