"""The clean stop of many logs: it waits for the disk, and a disk does several syncs at a time in the time of one.

The logs are worked at on one thread, as always; only the syncs of their plans go to others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from protocol.errors import KafkaError

if TYPE_CHECKING:
    from storage.flush import FlushPlan
    from storage.log import Log

logger = logging.getLogger(__name__)

WORTH_THREADS = 32
"""Fewer logs are synced one after the other."""
SYNCS_AT_ONCE = 8
PLANS_AT_ONCE = 4 * SYNCS_AT_ONCE
"""A plan holds descriptors."""


def close_all_cleanly(logs: Sequence[Log], now_ms: int) -> list[Log]:
    """Closes them all; returns those that could not be closed cleanly, for reasons that the broker's log names."""
    if len(logs) < WORTH_THREADS:
        return [log for log in logs if not _closed(log, None, now_ms)]
    unclean: list[Log] = []
    under_way: deque[tuple[Log, FlushPlan, Future[None]]] = deque()

    def settle() -> None:
        log, plan, synced = under_way.popleft()
        synced.result()
        if not _closed(log, plan, now_ms):
            unclean.append(log)

    with ThreadPoolExecutor(SYNCS_AT_ONCE, "sync") as pool:
        for log in logs:
            try:
                plan = None if log.offline else log.plan_close(now_ms)
            except KafkaError:
                plan = None  # trying again will say why
            if plan is not None:
                under_way.append((log, plan, pool.submit(plan.run)))
                if len(under_way) >= PLANS_AT_ONCE:
                    settle()
            elif not _closed(log, None, now_ms):
                unclean.append(log)
        while under_way:
            settle()
    return unclean


def _closed(log: Log, plan: FlushPlan | None, now_ms: int) -> bool:
    """Closes one log, of which some may have been synced already."""
    try:
        if plan is not None:
            log.flushed(plan)
        while not log.offline and log.unflushed_messages:  # a plan takes only so many segments
            log.flush(now_ms)
        log.close(clean=True)
    except KafkaError as error:
        logger.error("%s could not be closed cleanly: %s", log.directory, error)
        return False
    return not log.offline
