"""Tables: drawn for a terminal, padded columns of plain text for a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple


class Column(NamedTuple):
    """A heading; `width` is the minimum width in plain text, fixed by Kafka's tools per column."""

    name: str
    width: int = 0
    number: bool = False


def on_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def plain_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> str:
    """Return one line per row, the heading first; every column but the last is padded."""
    cells = [[column.name for column in columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(column.width, *(len(line[at]) for line in cells)) for at, column in enumerate(columns)]
    widths[-1] = 0
    return "\n".join(" ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in cells)


def tab_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> str:
    """Return one line per row, the heading first; every column is padded and followed by a tab (Kafka's ToolsUtils)."""
    cells = [[column.name for column in columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    return "\n".join("".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True)) for line in cells)


def print_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[object]],
    title: str | None = None,
    plain: Callable[[Sequence[Column], Sequence[Sequence[object]]], str] = plain_table,
) -> None:
    """Print a table with headings: drawn on a terminal, where its title is printed too, else as plain text."""
    if not on_terminal():
        print(plain(columns, rows))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
    table.title = Text(title) if title else None
    for column in columns:
        heading = column.name.rsplit("-", 1)  # CURRENT-OFFSET on two lines leaves room for the other columns
        table.add_column(
            Text("\n".join(heading)),
            justify="right" if column.number else "left",
            overflow="fold",
            min_width=max(map(len, heading)),
        )
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


def confirm(message: str) -> None:
    """Print a confirmation on a terminal; as in Kafka's tools, there is none in a pipe."""
    if on_terminal():
        print(message)


def print_if_open(line: str) -> None:
    """Print a line; if the output was closed (`| head`, or a closed terminal), discard this and all later output."""
    try:
        print(line, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
