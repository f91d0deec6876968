"""`gregor clients`: the consumers that fetch from a running broker, and how far they are behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from gregor.broker.cli.command import run
from gregor.broker.cli.tables import Column, print_table
from gregor.broker.cli.upkeep import DEFAULT_FOLDER, exchange, folder_options

EPILOG = """\b
Examples:
  gregor clients
  gregor clients --client-id spark-orders --data-dir /var/lib/gregor
"""


@click.command("clients", epilog=EPILOG)
@folder_options
@click.option("--client-id", "client_ids", metavar="ID", multiple=True, help="Only this client; repeatable.")
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="Only this topic; repeatable.")
def clients(**given: Any) -> int:
    """Show the consumers that fetch from a broker, with their positions and lag, whether they commit offsets or not."""
    ids, topics = given["client_ids"], given["topics"]
    rows = sorted(
        [
            *(answer[name] for name in ("client_id", "topic", "partition", "offset", "lag")),
            "-" if (lag_s := answer.get("lag_s")) is None else f"{lag_s:.3f}",  # earlier brokers send none
        ]
        for answer in exchange(given, {"command": "clients"})
        if (not ids or answer["client_id"] in ids) and (not topics or answer["topic"] in topics)
    )
    columns = [Column("CLIENT-ID"), Column("TOPIC"), Column("PARTITION", number=True)]
    columns += [Column("FETCH-OFFSET", number=True), Column("LAG", number=True), Column("LAG-SECONDS", number=True)]
    print_table(columns, rows)
    return 0


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command, which needs no argument."""
    return run(clients, arguments or ["--data-dir", DEFAULT_FOLDER])
