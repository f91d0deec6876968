"""`gregor retention`: applies a topic's retention now, or says what goes next, when and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from gregor.broker.cli.command import run
from gregor.broker.cli.tables import Column, print_table
from gregor.broker.cli.upkeep import common_options, give_order
from gregor.broker.units import size

EPILOG = """\b
Examples:
  gregor retention --topic orders
  gregor retention --topic orders --explain
  gregor retention --explain --config server.properties
"""


@click.command("retention", epilog=EPILOG)
@common_options
def retention(**given: Any) -> int:
    """Remove what a topic's retention no longer lets stay, or say when that comes and why."""
    answers = give_order("retention", given)
    if given["explain"]:
        columns = [
            *(Column("TOPIC"), Column("PARTITION", number=True), Column("SIZE", number=True)),
            *(Column("SEGMENTS", number=True), Column("NEXT-REMOVAL"), Column("WHY")),
        ]
        rows = [
            [
                answer["topic"],
                answer["partition"],
                size(answer.get("size_bytes", 0)),
                answer.get("segments", 0),
                answer["when"],
                answer["why"],
            ]
            for answer in answers
        ]
        print_table(columns, rows, "Retention")
        return 0
    failed = False
    for answer in answers:
        name = f"{answer['topic']}-{answer['partition']}"
        if not answer["done"]:
            print(f"{name}: {answer['reason']}")
            failed = True
        elif answer["removed_segments"]:
            print(
                f"{name}: removed {answer['removed_segments']} segments, {size(answer['removed_bytes'])}; begins with "
                f"offset {answer['log_start_offset']} now"
            )
        else:
            print(f"{name}: nothing is due")
    return int(failed)


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(retention, arguments)
