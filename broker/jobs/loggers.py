"""Levels of this process's loggers, as BROKER_LOGGER resources (KIP-412): in effect at once, until the process ends.

Level names are Log4j's, which clients send and expect; Python's loggers know two of them by other names or not at all.
"""

from __future__ import annotations

import logging

from gregor.broker.log import TRACE
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.admin.config_changes import ConfigChange, ConfigOperation

ROOT = "root"
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}
_BY_NUMBER = sorted((number, name) for name, number in LEVELS.items())

_log = logging.getLogger(__name__)


def levels() -> dict[str, str]:
    """Return the effective level of each logger, its own or that of its nearest parent; the root first."""
    known = logging.getLogger().manager.loggerDict
    found = sorted(name for name, entry in known.items() if isinstance(entry, logging.Logger))
    return {name: _level_name(_logger(name).getEffectiveLevel()) for name in (ROOT, *found)}


def alter(changes: list[ConfigChange], *, validate_only: bool) -> None:
    """Set levels, or reset a logger to that of its parent; all or none.

    Raises KafkaError INVALID_CONFIG (logger or level unknown), INVALID_REQUEST (the root needs a level; no lists here),
    UNKNOWN_SERVER_ERROR (no such operation).
    """
    known = levels()
    for name, operation, level in changes:
        _check(name, operation, level, known)
    if validate_only:
        return
    for name, operation, level in changes:
        if operation == ConfigOperation.SET and level is not None:
            _logger(name).setLevel(LEVELS[level])
            _log.info("logger %s: the level was set to %s", name, level)
        else:
            _logger(name).setLevel(logging.NOTSET)
            _log.info("logger %s: the level was reset to that of its parent", name)


def _check(name: str, operation: int, level: str | None, known: dict[str, str]) -> None:
    if operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a level is no list: nothing can be appended or subtracted")
    if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: unknown operation {operation}")
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
    if operation == ConfigOperation.SET and level not in LEVELS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={level}: must be one of {', '.join(LEVELS)}")
    if operation == ConfigOperation.DELETE and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the root logger needs a level")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _level_name(number: int) -> str:
    """Return the most detailed level that is still logged."""
    return next((name for limit, name in _BY_NUMBER if number <= limit), "OFF")
