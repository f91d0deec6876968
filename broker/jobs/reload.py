"""SIGHUP: the properties file of the start is read again; settings that a running broker can change are applied.

The system sends the same signal when a terminal is closed: a broker in its foreground then ends cleanly.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gregor.broker.log import logger

if TYPE_CHECKING:
    from gregor.broker.jobs.background import Background
    from gregor.config.broker import BrokerConfig
    from gregor.config.definitions import ConfigError

_STANDARD_INPUT = 0


class HangUp:
    """Handles each SIGHUP: a reload, or a stop if it comes from a closed terminal."""

    def __init__(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        self._stop = stop
        self._reload = reload
        self._on_terminal = os.isatty(_STANDARD_INPUT)

    def __call__(self) -> None:
        # isatty() is false for a terminal that was closed.
        if self._on_terminal and not os.isatty(_STANDARD_INPUT):
            self._stop()
        else:
            self._reload()


class _NotRegularFile(Exception):
    """A pipe, as a shell makes one of <(..): a read of it would wait for a writer, or find it empty."""


async def read_again(config: BrokerConfig, background: Background) -> dict[str, str] | None:
    """Read the properties file of the start on a thread. None, with a line in the log, if that is not possible."""
    from gregor.config.definitions import ConfigError

    if config.path is None:
        logger.warning("SIGHUP: the broker was started without a file, there is nothing to read again")
        return None
    try:
        return await background.run(_read, config.path)
    except _NotRegularFile:
        logger.error("SIGHUP: %s is not a regular file and cannot be read again; nothing changes", config.path)
    except ConfigError as error:
        _not_applied(config, error)
    except OSError as error:
        logger.error("SIGHUP: %s cannot be read: %s", config.path, error.strerror)
    return None


def _read(path: str) -> dict[str, str]:
    from gregor.config.broker import read_file

    if os.path.exists(path) and not os.path.isfile(path):
        raise _NotRegularFile
    return read_file(path)


def apply(
    config: BrokerConfig,
    texts: Mapping[str, str],
    changed: Callable[[], None],
    check_listeners: Callable[[BrokerConfig], None],
) -> None:
    """Apply the settings of the file, and log one line for each key that differs from what is in effect. `changed` is
    called if any was applied; `check_listeners` raises ConfigError where other listeners cannot be opened."""
    from gregor.config.definitions import ConfigError
    from gregor.config.reload import reload

    try:
        found = reload(config, texts, check_listeners)
    except ConfigError as error:
        _not_applied(config, error)
        return
    for one in found:
        logger.log(logging.INFO if one.applied else logging.WARNING, "%s: %s", config.path, one.line)
    if not found:
        logger.info("%s: nothing has changed", config.path)
    if any(one.applied for one in found):
        changed()


def _not_applied(config: BrokerConfig, error: ConfigError) -> None:
    logger.error("SIGHUP: %s is not applied: %s", config.path, error.message)
