"""SIGHUP: the properties file of the start is read again, and what a running broker can take of it is in effect.

The system sends the same signal when a terminal is closed: a broker in its foreground then ends cleanly.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.broker.log import logger

if TYPE_CHECKING:
    from gregor.config.addresses import Addresses
    from gregor.config.broker import BrokerConfig

_STANDARD_INPUT = 0


class HangUp:
    """Called for each SIGHUP."""

    def __init__(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        self._stop = stop
        self._reload = reload
        self._on_terminal = os.isatty(_STANDARD_INPUT)

    def __call__(self) -> None:
        # Of a terminal that is closed the system says that it is none.
        if self._on_terminal and not os.isatty(_STANDARD_INPUT):
            self._stop()
        else:
            self._reload()


def reload_file(
    config: BrokerConfig, changed: Callable[[], None], check_addresses: Callable[[Addresses], None]
) -> None:
    """Logs one line for each key that differs from what is in effect. `changed` is called if any was applied;
    `check_addresses` raises ConfigError where other listeners cannot be opened.

    A file that cannot be read changes nothing.
    """
    from gregor.config.broker import read_file
    from gregor.config.definitions import ConfigError
    from gregor.config.reload import reload

    if config.path is None:
        logger.warning("SIGHUP: the broker was started without a file, there is nothing to read again")
        return
    if os.path.exists(config.path) and not os.path.isfile(config.path):
        # A pipe, as a shell makes one of <(..): it would hold everything up, or be empty now.
        logger.error("SIGHUP: %s is not a regular file and cannot be read again; nothing changes", config.path)
        return
    try:
        found = reload(config, read_file(config.path), check_addresses)
    except ConfigError as error:
        logger.error("SIGHUP: %s is not applied: %s", config.path, error.message)
        return
    except OSError as error:
        logger.error("SIGHUP: %s cannot be read: %s", config.path, error.strerror)
        return
    for one in found:
        logger.log(logging.INFO if one.applied else logging.WARNING, "%s: %s", config.path, one.line)
    if not found:
        logger.info("%s: nothing has changed", config.path)
    if any(one.applied for one in found):
        changed()
