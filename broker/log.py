"""The broker's log: lines on standard error, one logger."""

from __future__ import annotations

import logging
import sys
import time

logger = logging.getLogger("gregor")


class _Formatter(logging.Formatter):
    """Makes the text of a time once for all lines of a second: a thousand groups that join at once write thousands."""

    _second = -1
    _text = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        second = int(record.created)
        if second != self._second:
            self._second = second
            self._text = time.strftime(datefmt or self.default_time_format, time.localtime(second))
        return f"{self._text},{int(record.msecs):03d}"


def configure(level: int = logging.INFO, label: str = "") -> None:
    """Send every log line of the process to standard error in Kafka's form: [time] LEVEL message. A label stands before
    the message, where several processes share the stream."""
    handler = logging.StreamHandler(sys.stderr)
    mark = f"[{label}] ".replace("%", "%%") if label else ""
    handler.setFormatter(_Formatter(f"[%(asctime)s] %(levelname)s {mark}%(message)s"))
    # No line names its thread or process.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=level, handlers=[handler], force=True)
