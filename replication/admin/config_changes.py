"""IncrementalAlterConfigs (KIP-339) on texts: set, delete, append to a list, subtract from a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from gregor.config.definitions import ConfigDef
from gregor.protocol.errors import ErrorCode, KafkaError


class ConfigOperation(IntEnum):
    """Numbers as on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    key: str
    operation: int
    value: str | None = None


def changed(
    current: Mapping[str, str],
    changes: Iterable[ConfigChange],
    definitions: Mapping[str, ConfigDef],
    unknown_operation: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR,
) -> dict[str, str]:
    """Return the settings after all changes; values are not checked yet. A list that is not set starts from its
    default.

    Raises KafkaError INVALID_REQUEST (a key twice, no value), INVALID_CONFIG (not a list), `unknown_operation` (none of
    the four).
    """
    result = dict(current)
    seen: set[str] = set()
    for key, operation, value in changes:
        if key in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"each key once: {key!r}")
        seen.add(key)
        if operation == ConfigOperation.DELETE:
            result.pop(key, None)
            continue
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} needs a value")
        if operation == ConfigOperation.SET:
            result[key] = value
        elif operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            elements = _elements(key, result, definitions)
            given = dict.fromkeys(part.strip() for part in value.split(","))
            if operation == ConfigOperation.APPEND:
                present = frozenset(elements)
                elements += [element for element in given if element not in present]
            else:
                elements = [element for element in elements if element not in given]
            result[key] = ",".join(elements)
        else:
            raise KafkaError(unknown_operation, f"{key}: unknown operation {operation}")
    return result


def _elements(key: str, current: Mapping[str, str], definitions: Mapping[str, ConfigDef]) -> list[str]:
    definition = definitions.get(key)
    if definition is None or definition.type != "list":
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is no list: nothing can be appended or subtracted")
    text = current.get(key)
    if text is None:
        text = definition.format(definition.default) or ""
    return [part.strip() for part in text.split(",") if part.strip()]
