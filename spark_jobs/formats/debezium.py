"""Change records in the format of Debezium as changes of a table.

A record is one of these:

* an envelope: `op`, `before` and `after` (`c` created, `r` read by a snapshot, `u` updated, `d` deleted);
* an envelope in `payload`, beside the `schema` of Kafka Connect's JsonConverter;
* a row, flattened by ExtractNewRecordState, with `__deleted` or `__op` where its configuration adds them;
* a tombstone, which follows a deletion: a null value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELETE = "_gregor_delete"


def changes(rows: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Return decoded rows with the row after the change in `value` and the flag `_gregor_delete`.

    The key columns of `value` are set also for deletions, from `before` or from the key of the record; its other
    columns are those before a deletion, or null. A record that is no change gets a `problem`.
    """
    raise NotImplementedError
