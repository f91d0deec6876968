"""The logs at the start of a broker: loaded before it serves, except those whose recovery needs long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from gregor.broker.log import logger

if TYPE_CHECKING:
    from gregor.broker.jobs.scan_helper import ScanHelper
    from gregor.storage.folders.manager import LogManager
    from gregor.storage.log.log import Log

PROGRESS_EVERY_S = 5.0


class StartupLoading:
    """Loads the logs of one broker. The processes of `scan_helper` end with the last log."""

    def __init__(self, logs: LogManager, scan_helper: ScanHelper) -> None:
        self._logs = logs
        self._scan_helper = scan_helper
        self._steps: Iterator[Log | None] | None = None

    @property
    def is_over(self) -> bool:
        return self._steps is None

    async def begin(self, limit_s: float) -> None:
        """Load logs for `limit_s`, but at least until all of them are listed."""
        self._steps = self._logs.load()
        until = time.monotonic() + limit_s
        for log in self._steps:
            if time.monotonic() > until and self._logs.listed:
                return
            if log is None:
                await self._give_turn(until - time.monotonic())
        await self._end()

    async def finish(self, loaded: Callable[[Log], None]) -> None:
        """Load the other logs; `loaded` is called with each."""
        assert self._steps is not None
        logged_s = time.monotonic()
        for log in self._steps:
            if log is not None:
                loaded(log)
            if time.monotonic() - logged_s > PROGRESS_EVERY_S:
                logged_s = time.monotonic()
                logger.info("recovering: %s", self._logs.progress)
            await self._give_turn(PROGRESS_EVERY_S)
        await self._end()

    async def _give_turn(self, limit_s: float) -> None:
        """Let other work proceed between two steps, or wait `limit_s` for a scan of another process."""
        if self._logs.waits:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._scan_helper.wait()
        else:
            await asyncio.sleep(0)

    async def _end(self) -> None:
        self._steps = None
        await self._scan_helper.close()
