"""The reload of the properties file while the broker runs: which changes are applied, and why the others are not.

The file is compared with the values in effect, so that each reload reports again a change that needs a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from gregor.config.broker import (
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    LISTENER_KEYS,
    BrokerConfig,
    broker_definition,
    known_names,
    nearest_key_hint,
)
from gregor.config.definitions import READ_ONLY, ConfigDef, ConfigError
from gregor.config.tables.broker_sasl_keys import listener_key

_OVERRIDDEN = {
    DYNAMIC_BROKER_CONFIG: "the dynamic setting of this broker",
    DYNAMIC_DEFAULT_BROKER_CONFIG: "the dynamic setting of all brokers",
}


class Reloaded(NamedTuple):
    """The outcome for one key whose text in the file differs from the value in effect."""

    key: str
    applied: bool
    line: str
    """The line for the log, without the values of secrets."""


def reload(
    config: BrokerConfig,
    file_texts: Mapping[str, str],
    check_listeners: Callable[[BrokerConfig], None] = lambda candidate: None,
) -> list[Reloaded]:
    """Apply the changes that a running broker can apply, in place; return one entry per key that differs, by name.

    `check_listeners` raises ConfigError if the new listeners cannot be opened.
    """
    found: list[Reloaded] = []
    wanted: dict[str, str | None] = {}
    for key, text in _differing(config, file_texts):
        reason = _obstacle(config, key)
        if reason is None:
            wanted[key] = text
        else:
            found.append(Reloaded(key, False, f"{_shown(key, text)} is ignored: {reason}"))
    found += _apply(config, wanted, check_listeners)
    return sorted(found)


def _differing(config: BrokerConfig, file_texts: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yield each key whose text in the file differs from that in effect, and the text; None if it was removed."""
    before = {**config.static_texts, **config.unknown_texts, **config.old_address}
    for key in dict.fromkeys((*before, *file_texts)):
        if key in config.overrides:
            if key in file_texts and file_texts[key] != config.overrides[key]:
                yield key, file_texts[key]
        elif before.get(key) != file_texts.get(key):
            yield key, file_texts.get(key)


def _obstacle(config: BrokerConfig, key: str) -> str | None:
    if key in config.overrides:
        return f"the {'environment' if key in config.environment else 'command line'} sets it and has precedence"
    definition = broker_definition(key)
    if definition is None:
        if key in config.old_address or key in config.static_texts:
            return "it is read at start-up only; restart the broker to apply it"
        return f"unknown key{nearest_key_hint(key, known_names())}"
    if listener_key(key) and listener_key(key) not in LISTENER_KEYS:
        return f"without effect here: {definition.no_effect or 'it cannot be set for a single listener'}"
    if definition.no_effect:
        return f"without effect here: {definition.no_effect}"
    if definition.dynamic == READ_ONLY:
        return "read-only; restart the broker to apply it"
    return None


def _apply(
    config: BrokerConfig, wanted: dict[str, str | None], check_listeners: Callable[[BrokerConfig], None]
) -> list[Reloaded]:
    """Apply all changes at once if they are legal together, else one by one until no further one is legal."""
    found: list[Reloaded] = []
    groups = [list(wanted)] if wanted else []
    errors: dict[str, ConfigError] = {}
    while groups:
        keys = groups.pop(0)
        texts = dict(config.static_texts)
        for key in keys:
            text = wanted[key]
            if text is None:
                texts.pop(key, None)
            else:
                texts[key] = text
        try:
            config.update_static(texts, check_listeners)
        except ConfigError as error:
            errors.update(dict.fromkeys(keys, error))
            if len(keys) > 1:
                groups += [[key] for key in keys]
            continue
        found += [_applied(config, key, wanted.pop(key)) for key in keys]
        # A change that failed on its own may be legal beside these.
        groups = [[key] for key in wanted]
    found += [
        Reloaded(key, False, f"{_shown(key, text)} is ignored: {errors[key].message}") for key, text in wanted.items()
    ]
    return found


def _applied(config: BrokerConfig, key: str, text: str | None) -> Reloaded:
    line = f"{_shown(key, text)} is applied"
    winner = _OVERRIDDEN.get(config.source(key))
    if winner is not None:
        return Reloaded(key, False, f"{_shown(key, text)} is stored, but {winner} has precedence")
    return Reloaded(key, True, line)


def _shown(key: str, text: str | None) -> str:
    definition: ConfigDef | None = broker_definition(key)
    if text is None:
        return f"{key} (no longer in the file)"
    return f"{key}=(hidden)" if definition is None or definition.sensitive else f"{key}={text}"
