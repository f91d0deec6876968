"""The batches of clients that retry, on the page."""

from __future__ import annotations

from gregor.broker.metrics.page import Page
from gregor.broker.metrics.repeated_batches import collect_repeats
from gregor.broker.metrics.table import FAMILIES
from gregor.protocol.errors import ErrorCode
from gregor.protocol.turns import run_all
from gregor.replication.repeated_batches import ClientRepeats


def test_each_client_has_a_series_for_each_error() -> None:
    repeats = ClientRepeats(lambda: 0.0)
    repeats.duplicate('a"b')
    repeats.refused("c", ErrorCode.NOT_ENOUGH_REPLICAS)
    page = Page(FAMILIES)
    run_all(collect_repeats(page, repeats))
    text = b"".join(run_all(page.render(openmetrics=False))).decode()
    name = "gregor_client_repeated_batches_total"
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        f'{name}{{client_id="a\\"b",error="DUPLICATE_SEQUENCE_NUMBER"}} 1',
        f'{name}{{client_id="c",error="NOT_ENOUGH_REPLICAS"}} 1',
    ]
