"""Broker settings of Apache Kafka 4.3.1 that change nothing here: checked, kept and described, and each says why.

They stand in ``no_effect.tsv``, one a line: key, type, default, minimum, maximum, choices, who may alter it, whether it
is internal, why it is without effect, help. A default of ``null`` is none. The file is read when the first of them is
set or described: a broker that starts without them does not hold them.
"""

from __future__ import annotations

import functools
from pathlib import Path

from gregor.config.definitions import ConfigDef

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
        minimum=_number(minimum),
        maximum=_number(maximum),
        choices=tuple(choices.split("|")) if choices else (),
        dynamic=dynamic,
        internal=bool(internal),
        no_effect=reason,
    )
    if default != NULL:
        definition.default = definition.parse(default)
    return definition


def _number(text: str) -> int | float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)
