"""`gregor compact`: compacts a topic of a running broker now, or says when that comes by itself and why."""

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
  gregor compact --topic customers
  gregor compact --topic customers --partition 3 --no-roll
  gregor compact --topic customers --explain
  gregor compact --explain --data-dir /var/lib/gregor
"""


@click.command("compact", epilog=EPILOG)
@common_options
@click.option("--no-roll", is_flag=True, help="Leave the active segment alone instead of ending it to compact it, too.")
def compact(**given: Any) -> int:
    """Compact a topic now, or say when that comes and why."""
    if given["explain"] and given["no_roll"]:
        raise click.UsageError("--no-roll does not go with --explain.")
    answers = give_order("compact", given)
    if given["explain"]:
        columns = [
            *(Column("TOPIC"), Column("PARTITION", number=True), Column("DIRTY", number=True)),
            *(Column("CLEAN", number=True), Column("RATIO", number=True), Column("NEXT-RUN"), Column("WHY")),
        ]
        rows = [
            [
                answer["topic"],
                answer["partition"],
                size(answer.get("dirty_bytes", 0)),
                size(answer.get("clean_bytes", 0)),
                f"{answer.get('ratio', 0):.2f}",
                answer["when"],
                answer["why"],
            ]
            for answer in answers
        ]
        print_table(columns, rows, "Compaction")
        return 0
    failed = False
    for answer in answers:
        name = f"{answer['topic']}-{answer['partition']}"
        if answer["done"]:
            print(
                f"{name}: {size(answer['bytes_before'])} became {size(answer['bytes_after'])}, "
                f"{answer['records_after']} of {answer['records_before']} records stay; compacted up to offset "
                f"{answer['cleaned_offset']}"
            )
        else:
            print(f"{name}: {answer['reason']}")
            failed = failed or not answer["reason"].startswith("nothing to compact")
    return int(failed)


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(compact, arguments)
