"""The broker's log: lines on standard error, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable

logger = logging.getLogger("gregor")

FORMAT_KEY = "gregor.log.format"
TEXT = "text"
JSON = "json"
TRACE = 5
"""Log4j's level below DEBUG, which Python's loggers do not know."""

_CONTINUED = logging.Formatter()


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


class JsonFormatter(logging.Formatter):
    """Makes one JSON object of each record, without line ends in it: time (ISO 8601, UTC), level, logger, message,
    broker (its number, once it is known), process (the label, where several share the stream), error (with the stack,
    one string)."""

    def __init__(self, label: str = "", broker_id: Callable[[], int] | None = None) -> None:
        """`broker_id` returns a negative number while it is unknown."""
        super().__init__()
        self._label = label
        self._broker_id = broker_id
        self._second = -1
        self._text = ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        line: dict[str, object] = {
            "time": f"{self._text}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._broker_id is not None and (broker_id := self._broker_id()) >= 0:
            line["broker"] = broker_id
        if self._label:
            line["process"] = self._label
        parts = [_CONTINUED.formatException(record.exc_info)] if record.exc_info and record.exc_info[1] else []
        if record.stack_info:
            parts.append(record.stack_info)
        if parts:
            line["error"] = "\n".join(parts)
        # With escapes for other characters than ASCII: half a surrogate pair would end the line with an error.
        return json.dumps(line)


def configure(
    level: int = logging.INFO, label: str = "", form: str = TEXT, broker_id: Callable[[], int] | None = None
) -> None:
    """Send every log line of the process to standard error.

    `form`: TEXT is Kafka's form, [time] LEVEL message, where a label stands before the message if several processes
    share the stream. JSON: see JsonFormatter, to which `broker_id` belongs.
    """
    handler = logging.StreamHandler(sys.stderr)
    if form == JSON:
        handler.setFormatter(JsonFormatter(label, broker_id))
    else:
        mark = f"[{label}] ".replace("%", "%%") if label else ""
        handler.setFormatter(_Formatter(f"[%(asctime)s] %(levelname)s {mark}%(message)s"))
    logging.addLevelName(TRACE, "TRACE")
    # No line names its thread or process.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=level, handlers=[handler], force=True)
