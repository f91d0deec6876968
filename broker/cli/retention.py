"""`gregor retention`: applies a topic's retention now, or shows which segment is removed next, when and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from gregor.broker.cli.command import run
from gregor.broker.cli.tables import Column
from gregor.broker.cli.upkeep import Answer, Upkeep, common_options, perform
from gregor.broker.units import size

EPILOG = """\b
Examples:
  gregor retention --topic orders
  gregor retention --topic orders --explain
  gregor retention --explain --config server.properties
"""


def _done(answer: Answer) -> str:
    if not answer["removed_segments"]:
        return "no segment is due for removal"
    return (
        f"removed {answer['removed_segments']} segments, {size(answer['removed_bytes'])}; the log now starts at offset "
        f"{answer['log_start_offset']}"
    )


RETENTION = Upkeep(
    "retention",
    "Retention",
    (Column("SIZE", number=True), Column("SEGMENTS", number=True)),
    "NEXT-REMOVAL",
    lambda answer: [size(answer.get("size_bytes", 0)), answer.get("segments", 0)],
    _done,
)


@click.command("retention", epilog=EPILOG)
@common_options
def retention(**given: Any) -> int:
    """Remove the segments that a topic's retention no longer keeps, or show when the next one is due and why."""
    return perform(RETENTION, given)


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(retention, arguments)
