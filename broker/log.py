"""The broker's log: lines on standard error, one logger."""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger("gregor")


def configure(level: int = logging.INFO, label: str = "") -> None:
    """Send every log line of the process to standard error in Kafka's form: [time] LEVEL message. A label stands before
    the message, where several processes share the stream."""
    handler = logging.StreamHandler(sys.stderr)
    mark = f"[{label}] ".replace("%", "%%") if label else ""
    handler.setFormatter(logging.Formatter(f"[%(asctime)s] %(levelname)s {mark}%(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
