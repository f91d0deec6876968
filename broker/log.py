"""The broker's log: lines on standard error, one logger."""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger("gregor")


def configure(level: int = logging.INFO) -> None:
    """Send every log line of the process to standard error in Kafka's form: [time] LEVEL message."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
