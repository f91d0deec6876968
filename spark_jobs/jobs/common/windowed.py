"""Arguments of the jobs over windows of the event time, and the output modes of results that change."""

from __future__ import annotations

import argparse

MODES = ("update", "append")


def mode_problem(sink: str, mode: str | None) -> str | None:
    """Return why the sink cannot hold the results of this mode, or None."""
    if sink == "parquet" and mode == "update":
        return "--sink parquet cannot hold updates: a folder of files only grows; use --mode append"
    return None


def mode_for(sink: str, mode: str | None) -> str:
    """Return the mode; without one that which fits the sink."""
    return mode or ("append" if sink == "parquet" else "update")


def add_window_arguments(parser: argparse.ArgumentParser, rows: str) -> None:
    """Add the arguments of windows and of their output mode; `rows` names the rows of an update."""
    add = parser.add_argument
    add("--window", default="1 minute", metavar="TIME", help="length of a window; default: %(default)s")
    add("--slide", metavar="TIME", help="time between the starts of windows; default: their length, so none overlap")
    add(
        "--watermark",
        default="10 minutes",
        metavar="TIME",
        help="a record is dropped if its window ended this long before the highest event time; default: %(default)s",
    )
    add(
        "--mode",
        choices=MODES,
        help=f"update: {rows} that changed, in each batch; append: each window once, when it is finished. "
        "Default: append for parquet, else update",
    )
