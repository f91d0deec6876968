"""`gregor compact`: compacts a topic of a running broker now, or shows when its next compaction is due and why."""

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
  gregor compact --topic customers
  gregor compact --topic customers --partition 3 --no-roll
  gregor compact --topic customers --explain
  gregor compact --explain --data-dir /var/lib/gregor
"""


def _measures(answer: Answer) -> list[object]:
    return [size(answer.get("dirty_bytes", 0)), size(answer.get("clean_bytes", 0)), f"{answer.get('ratio', 0):.2f}"]


def _done(answer: Answer) -> str:
    return (
        f"compacted up to offset {answer['cleaned_offset']}, from {size(answer['bytes_before'])} to "
        f"{size(answer['bytes_after'])}; {answer['records_after']} of {answer['records_before']} records remain"
    )


COMPACTION = Upkeep(
    "compact",
    "Compaction",
    (Column("DIRTY", number=True), Column("CLEAN", number=True), Column("RATIO", number=True)),
    "NEXT-RUN",
    _measures,
    _done,
    lambda answer: answer["reason"].startswith("nothing to compact"),
)


@click.command("compact", epilog=EPILOG)
@common_options
@click.option("--no-roll", is_flag=True, help="Do not close the active segment, which leaves it out of the compaction.")
def compact(**given: Any) -> int:
    """Compact a topic now, or show when its next compaction is due and why."""
    if given["explain"] and given["no_roll"]:
        raise click.UsageError("--no-roll and --explain contradict each other.")
    return perform(COMPACTION, given)


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(compact, arguments)
