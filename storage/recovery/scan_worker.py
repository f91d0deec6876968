"""The process that checks segments after a crash: `python -m gregor.storage.recovery.scan_worker`. Only reads.

    in   {"path": ".log file", "scan": {fields of Scan.job}}
    out  {"found": {fields of Scan.findings}, "offset_bytes": n, "time_bytes": n}, then the entries: so many bytes
    out  {"given_back": "why"}          instead: the broker checks the segment itself, and finds out what is wrong

The process ends with its input, and in the middle of a walk as soon as its parent is gone. It runs with the priority of
the broker: partitions wait for it.
"""

from __future__ import annotations

import json

from gregor.storage.fs.worker import Worker, run_worker
from gregor.storage.segment.scan import Scan

MAX_HEADERS = 5000
"""Of batches of producers: the event loop that receives more of them would be busy for longer than a step."""


class ScanWorker(Worker):
    """Checks one segment after the other."""

    def serve(self) -> None:
        while line := self._source.readline():
            message = json.loads(line)
            scan = Scan.from_job(message["scan"])
            try:
                self._walk(message["path"], scan)
            except OSError as error:
                self._answer(given_back=str(error))
                continue
            headers = len(scan.trail.to_fields()["recent"])
            if headers > MAX_HEADERS:
                self._answer(given_back=f"{headers} batches of producers")
                continue
            offset_entries, time_entries = scan.offset_entries, scan.time_entries
            self._answer(
                b"".join((offset_entries, time_entries)),
                found=scan.findings(),
                offset_bytes=len(offset_entries),
                time_bytes=len(time_entries),
            )

    def _walk(self, path: str, scan: Scan) -> None:
        file = self._files.open(path)
        try:
            for _ in scan.run(file):
                self._check_parent()
        finally:
            file.close()


def main() -> None:
    """Entry point of the process."""
    run_worker(ScanWorker)


if __name__ == "__main__":
    main()
