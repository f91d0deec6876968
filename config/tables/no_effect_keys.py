"""Broker settings of Apache Kafka 4.3.1 that change nothing here: checked, kept and described, and each says why.

They stand in ``no_effect.tsv``, one a line: key, type, default, minimum, maximum, choices, who may alter it, whether it
is internal, why it is without effect, help. A default of ``null`` is none. The file is read when the first of them is
set or described: a broker that starts without them does not hold them.
"""

from __future__ import annotations

import functools
from pathlib import Path

from gregor.config.definitions import INTERNAL, LISTED, ConfigDef
from gregor.config.validators import ANY_VALUE, Validator, at_least, between, one_of

NULL = "null"


@functools.cache
def inert_keys() -> dict[str, ConfigDef]:
    """Return all of them by name."""
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
