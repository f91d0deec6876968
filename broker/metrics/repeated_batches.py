"""Clients that retry: batches that were refused, or that the log had already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gregor.broker.metrics.family import COUNTER, Family, label_text
from gregor.protocol.turns import ITEMS_PER_STEP, Steps

if TYPE_CHECKING:
    from gregor.broker.metrics.page import Page
    from gregor.replication.repeated_batches import ClientRepeats

_REPEATS = "gregor_client_repeated_batches_total"

FAMILIES = (
    Family(
        _REPEATS,
        COUNTER,
        ("client_id", "error"),
        "Batches of a client that were answered with this error, or that were there already"
        " (DUPLICATE_SEQUENCE_NUMBER): a client that retries sends them again and again.",
    ),
)


def collect_repeats(page: Page, repeats: ClientRepeats) -> Steps[None]:
    """Add the family of this module."""
    for number, one in enumerate(repeats.read(), 1):
        page.add(_REPEATS, one.total, label_text(client_id=one.client_id, error=one.error_name))
        if not number % ITEMS_PER_STEP:
            yield None
    yield None
