"""Closes many logs at a clean stop, which spends its time on syncs of the disk.

A disk does several syncs at a time in the time of one, and thousands of files are synced best with the whole file
system. The logs are used on one thread, as always; only the syncs of their plans run on others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from posixpath import dirname
from typing import TYPE_CHECKING

from gregor.protocol.errors import KafkaError

if TYPE_CHECKING:
    from gregor.storage.fs.files import Files
    from gregor.storage.log.flush import FlushPlan
    from gregor.storage.log.log import Log

_log = logging.getLogger(__name__)

WORTH_THREADS = 32
"""Fewer logs are synced one after the other."""
WORTH_EVERYTHING = 500
SYNCS_AT_ONCE = 8
PLANS_AT_ONCE = 4 * SYNCS_AT_ONCE
"""A plan holds descriptors."""


def close_all_cleanly(logs: Sequence[Log], files: Files, now_ms: int) -> list[Log]:
    """Close them all; returns those that could not be closed cleanly, for reasons that are logged."""
    if len(logs) < WORTH_THREADS:
        return [log for log in logs if not _closed(log, None, now_ms)]
    if len(logs) < WORTH_EVERYTHING:
        return _close_several_at_a_time(logs, now_ms)
    unclean: list[Log] = []
    by_folder: dict[str, list[Log]] = {}
    for log in logs:
        by_folder.setdefault(dirname(log.directory), []).append(log)
    for folder, its_logs in by_folder.items():
        unclean += _close_with_everything(folder, its_logs, files, now_ms)
    return unclean


def _close_with_everything(folder: str, logs: list[Log], files: Files, now_ms: int) -> list[Log]:
    """Close the logs of one data folder."""
    plans: dict[Log, FlushPlan] = {}
    for log in logs:
        with suppress(KafkaError):  # the second attempt raises it again
            plan = None if log.offline else log.flusher.plan_close(now_ms, hold=False)
            if plan is not None:
                plans[log] = plan
    done, failure = False, None
    try:
        done = files.sync_everything(folder)
    except OSError as error:
        failure = error
    for log, plan in plans.items():
        plan.was_run(done=done, error=failure)
        if not done and failure is None:
            log.flusher.flushed(plan)  # not run: all is still to be synced
    if not done and failure is None:
        return _close_several_at_a_time(logs, now_ms)
    return [log for log in logs if not _closed(log, plans.get(log), now_ms)]


def _close_several_at_a_time(logs: Sequence[Log], now_ms: int) -> list[Log]:
    unclean: list[Log] = []
    under_way: deque[tuple[Log, FlushPlan, Future[None]]] = deque()

    def close_oldest() -> None:
        log, plan, synced = under_way.popleft()
        synced.result()
        if not _closed(log, plan, now_ms):
            unclean.append(log)

    with ThreadPoolExecutor(SYNCS_AT_ONCE, "sync") as pool:
        for log in logs:
            try:
                plan = None if log.offline else log.flusher.plan_close(now_ms)
            except KafkaError:
                plan = None  # the second attempt raises it again
            if plan is not None:
                under_way.append((log, plan, pool.submit(plan.run)))
                if len(under_way) >= PLANS_AT_ONCE:
                    close_oldest()
            elif not _closed(log, None, now_ms):
                unclean.append(log)
        while under_way:
            close_oldest()
    return unclean


def _closed(log: Log, plan: FlushPlan | None, now_ms: int) -> bool:
    """Close one log, a part of which may have been synced already; returns whether that was clean."""
    try:
        if plan is not None:
            log.flusher.flushed(plan)
        while not log.offline and log.offsets.unflushed_messages:  # a plan has a limited number of segments
            log.flusher.flush(now_ms)
        log.close(clean=True)
    except KafkaError as error:
        _log.error("%s could not be closed cleanly: %s", log.directory, error)
        return False
    return not log.offline
