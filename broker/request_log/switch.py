"""Switches the log of requests on and off while the broker runs.

It is on while the level of the logger `kafka.request.logger` is DEBUG or TRACE, which `kafka-configs --entity-type
broker-loggers` alters as in Apache Kafka, or while `gregor.slow.request.log.ms` is not negative.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from gregor.broker.request_log.log import RequestLog, request_logger

if TYPE_CHECKING:
    from gregor.config.broker import BrokerConfig

SLOW_KEY = "gregor.slow.request.log.ms"


class RequestLogSwitch:
    """`start()`, then `follow()` after each change of a level or a setting."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._log = RequestLog(loop)
        self._use: Callable[[RequestLog | None], None] = lambda log: None

    def start(self, use: Callable[[RequestLog | None], None]) -> None:
        """`use` is called with the log, or with None while it is off."""
        self._use = use
        if request_logger.level == logging.NOTSET:
            # As in Apache Kafka's log4j2.yaml: a root logger at DEBUG does not switch it on.
            request_logger.setLevel(logging.WARNING)
        self.follow()

    def follow(self) -> None:
        is_used = self._log.log_slow(self._config[SLOW_KEY]) or request_logger.isEnabledFor(logging.DEBUG)
        self._use(self._log if is_used else None)
