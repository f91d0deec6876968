"""The session in which both sources run in turns, and the frames of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CORES = 2
DRIVER_MEMORY = "1g"
WAIT_MS = "20"
"""For which the connector waits at the end of each partition, instead of 500 ms that would count against it."""


@contextlib.contextmanager
def spark_session(folder: Path) -> Iterator[Any]:
    """Open a session on this machine, whose log is in the folder."""
    from gregor.spark_jobs.session import open_session

    settings = {
        "spark.master": f"local[{CORES}]",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    session = open_session("bench", settings, folder / "spark.log")
    try:
        yield session
    finally:
        session.stop()


def source_options(bootstrap: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.fetch.max.wait.ms": WAIT_MS}


def read_all(session: Any, mode: str, bootstrap: str, topic: str) -> None:
    """Read a topic with all columns of all rows, by the connector or by a mode of gregor's source."""
    reader = session.read.format("kafka" if mode == "kafka" else "gregor").options(**source_options(bootstrap, topic))
    if mode != "kafka":
        reader = reader.option("mode", mode)
    reader.load().write.format("noop").mode("overwrite").save()
