"""Reading: records for each second, and for each second of a core, by both modes and by the connector."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from gregor.protocol.records.compression import LZ4, NONE
from tests.bench.compare import Values
from tests.bench.figures import Figure
from tests.bench.spark.data import Kind, fill
from tests.bench.spark.session import read_all
from tests.bench.spark.turns import compared, run_turns
from tests.support.processes import BrokerProcess

KINDS = [Kind(size, codec) for size in (100, 1000) for codec in (NONE, LZ4)]
MIN_RATIOS = {"files": 1.5, "wire": 1.0}
BYTES_OF_FULL_RUN = 400_000_000


def reads(
    session: Any, broker: BrokerProcess, records: int, rounds: int, kinds: list[Kind]
) -> Iterator[tuple[list[Values], list[Figure]]]:
    """Measure topics of each kind; `records`: of the smallest kind, those of others have as many bytes."""
    for kind in kinds:
        topic = "bench-" + kind.name.replace(" ", "-")
        count = fill(broker.port, topic, kind, max(100, records * KINDS[0].value_bytes // kind.value_bytes))

        def load(mode: str, topic: str = topic, count: int = count) -> int:
            read_all(session, mode, broker.bootstrap, topic)
            return count

        sides = {side: lambda side=side, load=load: load(side) for side in ("files", "kafka", "wire")}
        found = run_turns(f"read {kind.name}", sides, rounds, [broker.pid])
        values, figures = [], []
        for side, minimum in MIN_RATIOS.items():
            of_side = compared(f"{side}, {kind.name}", found[side], found["kafka"])
            values += of_side
            for one in of_side:
                ratio = statistics.median(one.ratios)
                figures.append(
                    Figure(
                        f"over the connector: {one.figure.rpartition(',')[0]}"
                        f"{' by core' if 'core' in one.figure else ''}",
                        ratio,
                        "",
                        minimum=minimum,
                    )
                )
        yield values, figures
