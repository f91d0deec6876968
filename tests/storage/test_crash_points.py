"""A crash between any two steps of a broker's life: of the process, which loses no written byte, or of the machine,
which loses what was not synced. The next start must find what was promised, and so must the one after a crash of that.
"""

from __future__ import annotations

import pytest

from gregor.config.broker import BrokerConfig
from gregor.protocol.ids import ZERO_UUID
from gregor.protocol.turns import run_all
from gregor.storage.folders.manager import LogManager
from gregor.storage.log.log import Log
from tests.storage.checkpoints import write_high_watermarks
from tests.storage.logs import NOW_MS, log_config, read_offsets, sequenced
from tests.storage.memory_files import MemoryFiles

CONFIG = log_config(segment_bytes=300, index_interval_bytes=100)
NEVER = -1
TORN_BYTES = 7


class Crash(BaseException):
    """The process is gone."""


class CrashingFiles(MemoryFiles):
    """Crashes instead of doing a certain step; a write may be done in part."""

    def __init__(self, crash_at: int = NEVER, *, torn: bool = False) -> None:
        super().__init__()
        self.steps = 0
        self.crash_at = crash_at
        self._torn = torn
        self.make_directory("/data")

    def count(self, operation: str, path: str) -> int | None:
        if self.steps == self.crash_at:
            if not self._torn or operation != "write":
                raise Crash
            self.crash_at += 1
            self.steps += 1
            super().count(operation, path)
            return TORN_BYTES
        self.steps += 1
        return super().count(operation, path)


def started(files: MemoryFiles) -> LogManager:
    manager = LogManager(BrokerConfig({"log.dirs": "/data"}), files, lambda: NOW_MS)
    for _ in manager.load(lambda topic: CONFIG):
        pass
    return manager


class Life:
    """A broker's actions until it crashes, and its promises up to then."""

    def __init__(self, files: CrashingFiles) -> None:
        self.files = files
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.synced: dict[tuple[str, int], int] = {}
        self.removed = self.made_anew = False
        self.crashed = False
        self._logs: dict[tuple[str, int], Log] = {}
        try:
            self._live()
        except Crash:
            self.crashed = True
        files.crash_at = NEVER

    def _live(self) -> None:
        manager = started(self.files)
        for key in (("t", 0), ("t", 1), ("gone", 0)):
            self._logs[key] = manager.get_or_create(*key, ZERO_UUID, CONFIG)
        self._append(6)
        self._flush()
        run_all(manager.checkpoints.recovery_points())()
        self._append(6)
        log = self._logs["t", 0]
        log.offsets.restore_high_watermark(5)
        log.retention.advance_log_start_offset(4)
        for path in log.retention.delete_due(NOW_MS):
            self.files.unlink(path)
        write_high_watermarks(manager)
        self.removed = True
        del self._logs["gone", 0]
        self.files.remove_directory(manager.remove("gone", 0))
        self._append(3)
        # The same name again: nothing of the old log may come back with it.
        self._logs["gone", 0] = manager.get_or_create("gone", 0, ZERO_UUID, CONFIG)
        self.acknowledged["gone", 0] = self.synced["gone", 0] = 0
        self.removed, self.made_anew = False, True
        self._append(2)
        manager.close_all()
        for key, log in self._logs.items():
            self.synced[key] = log.log_end_offset

    def _append(self, count: int) -> None:
        for _ in range(count):
            for key, log in self._logs.items():
                log.append_as_leader(sequenced(7, 0, log.log_end_offset), 1, NOW_MS)
                self.acknowledged[key] = log.log_end_offset

    def _flush(self) -> None:
        for key, log in self._logs.items():
            log.flusher.flush()
            self.synced[key] = log.recovery_point

    def check(self, promised: dict[tuple[str, int], int]) -> None:
        """A start finds all that was promised, and nothing that was never written."""
        manager = started(self.files)
        assert manager.failed == {}
        for key, end_offset in promised.items():
            if self.removed and key == ("gone", 0):
                continue
            log = manager.logs[key]
            assert end_offset <= log.log_end_offset <= 17
            assert log.log_start_offset <= 4
            assert read_offsets(log, log.log_start_offset) == list(range(log.log_start_offset, log.log_end_offset))
            if log.log_end_offset:
                assert log.producers.entries[7].next_sequence == log.log_end_offset
                assert log.latest_epoch() == 1
        if self.made_anew:
            log = manager.logs["gone", 0]
            assert (log.log_start_offset, log.log_end_offset) in ((0, 0), (0, 1), (0, 2))


@pytest.fixture(scope="module")
def steps() -> int:
    return Life(CrashingFiles()).files.steps


def points(steps: int, every: int) -> range:
    return range(0, steps + 1, every)


@pytest.mark.parametrize(
    ("every", "torn"),
    [
        (29, True),
        pytest.param(1, True, marks=pytest.mark.slow),
        pytest.param(1, False, marks=pytest.mark.slow),
    ],
)
def test_a_crash_of_the_process_loses_nothing_acknowledged(every: int, torn: bool, steps: int) -> None:
    for crash_at in points(steps, every):
        life = Life(CrashingFiles(crash_at, torn=torn))
        assert life.crashed is (crash_at < steps)
        life.check(life.acknowledged)


@pytest.mark.parametrize("every", [31, pytest.param(1, marks=pytest.mark.slow)])
def test_a_crash_of_the_machine_loses_nothing_synced(every: int, steps: int) -> None:
    for crash_at in points(steps, every):
        life = Life(CrashingFiles(crash_at, torn=True))
        life.files.crash()
        life.check(life.synced)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [False, True])
def test_a_crash_of_the_next_start_changes_nothing(machine: bool, steps: int) -> None:
    for first in (steps // 3, steps * 2 // 3, steps - 2, steps):
        crash_at = 0
        while True:
            life = Life(CrashingFiles(first, torn=True))
            if machine:
                life.files.crash()
            life.files.crash_at = life.files.steps + crash_at
            try:
                started(life.files)
            except Crash:
                life.files.crash_at = NEVER
                if machine:
                    life.files.crash()
                life.check(life.synced if machine else life.acknowledged)
                crash_at += 1
            else:
                break
        assert crash_at > 5
