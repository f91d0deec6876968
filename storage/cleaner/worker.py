"""The process that compacts: `python -m gregor.storage.cleaner.worker`: a line of JSON in for one out.

    in   {"producers": [[id, last offset, epoch], ..]}      any number of times, for the log of the next job
    in   {"job": {fields of CleaningJob}, "bytes_per_second": n or null}
    out  {"mapped": {"end_offset": n, "groups": n}}
    out  {"cleaned": {fields of CleanedGroup}}              once for each group; then it waits
    in   {"swapped": true}
    out  {"done": {"end_offset": n, "map_bytes_read": n}}   ready for the next job
    out  {"error": "what and where", "errno": n or null}    instead of any of these; ready for the next job

The process ends with its input, and in the middle of a job as soon as its parent is gone: no other process may write to
the folders of the next broker. It is small (the interpreter and the modules of storage), and runs with a lower priority
than the broker.
"""

from __future__ import annotations

import json
import os
import time

from gregor.protocol.records.batch import CorruptBatch
from gregor.storage.cleaner.cleaner import CleaningJob, CleaningRun
from gregor.storage.fs.disk_errors import error_text
from gregor.storage.fs.throttle import Throttle
from gregor.storage.fs.worker import ParentGone, Worker, run_worker

NICENESS = 10
LONGEST_SLEEP_S = 0.2


class CleanerWorker(Worker):
    """Compacts one log after the other."""

    def serve(self) -> None:
        producers: dict[int, tuple[int, int]] = {}
        while line := self._source.readline():
            message = json.loads(line)
            if "producers" in message:
                producers.update((one, (offset, epoch)) for one, offset, epoch in message["producers"])
                continue
            try:
                self._clean(CleaningJob.from_fields(message["job"]), producers, message["bytes_per_second"])
            except OSError as error:
                self._answer(error=error_text(error), errno=error.errno)
            except (CorruptBatch, ValueError) as error:
                self._answer(error=str(error), errno=None)
            producers = {}

    def _clean(self, job: CleaningJob, producers: dict[int, tuple[int, int]], bytes_per_second: float | None) -> None:
        throttle = None if bytes_per_second is None else Throttle(bytes_per_second, time.monotonic, self._sleep)

        def charge(size_bytes: int) -> None:
            self._check_parent()
            if throttle is not None:
                throttle.charge(size_bytes)

        run = CleaningRun(self._files, job, producers, charge)
        run.build_map()
        groups = run.groups()
        self._answer(mapped={"end_offset": run.end_offset, "groups": len(groups)})
        for group in groups:
            self._answer(cleaned=run.clean(group)._asdict())
            if not self._source.readline():
                raise ParentGone
        self._answer(done={"end_offset": run.end_offset, "map_bytes_read": run.map_bytes_read})

    def _sleep(self, seconds: float) -> None:
        while seconds > 0:
            time.sleep(min(seconds, LONGEST_SLEEP_S))
            seconds -= LONGEST_SLEEP_S
            self._check_parent()


def main() -> None:
    """Entry point of the process."""
    os.nice(NICENESS)
    run_worker(CleanerWorker)


if __name__ == "__main__":
    main()
