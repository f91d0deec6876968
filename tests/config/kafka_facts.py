"""Apache Kafka 4.3.1's settings as its own jars list them (`DumpSettings.java` made the file)."""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

from gregor.config.definitions import ConfigDef
from gregor.config.validators import Choices, Form, Range

FILE = pathlib.Path(__file__).with_name("kafka-4.3.1-settings.tsv")


class Fact(NamedTuple):
    key: str
    type: str
    default: str
    validator: str
    mode: str


def read_facts(level: str) -> dict[str, Fact]:
    rows = [line.split("\t") for line in FILE.read_text().splitlines()]
    return {row[1]: Fact(*row[1:]) for row in rows if row[0] == level}


def default_text(definition: ConfigDef) -> str:
    """Our default as Java's toString shows it."""
    value = definition.default
    if value is None:
        return "<NULL>"
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return str(definition.format(value))


def validator_text(definition: ConfigDef) -> str:
    """Our range as the validators of Kafka's ConfigDef print themselves; choices come sorted."""
    validator = definition.validator
    if isinstance(validator, Choices):
        return f"[{', '.join(sorted(validator.choices))}]"
    if isinstance(validator, Form):
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    if not isinstance(validator, Range):
        return ""
    if validator.maximum is None:
        return f"[{validator.minimum},...]"
    also = "".join(f" or {value}" for value in validator.also)
    return f"[{validator.minimum},...,{validator.maximum}]{also}"


def sorted_choices(validator: str) -> str:
    """Kafka's text of a validator, with choices sorted."""
    match = re.fullmatch(r"\[([A-Za-z].*)\]", validator)
    return f"[{', '.join(sorted(match[1].split(', ')))}]" if match and ":" not in validator else validator
