"""Generated records: keys of a chosen distribution, and values of a chosen size, the same ones for the same numbers.

Everything is computed from the number of a row and a seed, so that a batch that is repeated has the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FILLER_START, _FILLER_END = ',"filler":"', '"}'


@dataclass(frozen=True)
class Shape:
    """The keys and values of generated records.

    `keys` is the number of different keys, None for records without a key. `size_bytes` is the size of each value, for
    JSON the smallest one. `columns` are the fields of a JSON object, as expressions over `id`, `key`, `time`, `chance`.
    """

    keys: int | None = None
    distribution: str = "uniform"
    skew: float = 1.0
    format: str = "json"
    size_bytes: int = 100
    columns: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0


def generated(numbers: DataFrame, shape: Shape) -> DataFrame:
    """Return records `key` and `value` from rows of Spark's rate sources: a number `value` and a `timestamp`."""
    rows = numbers.select(F.col("value").alias("id"), F.col("timestamp").alias("time"))
    rows = rows.select("id", "time", key_column(shape).alias("key"), chance(shape.seed + 1).alias("chance"))
    if shape.format == "bytes":
        return rows.select("key", random_bytes(shape.size_bytes, shape.seed).alias("value"))
    fields = shape.columns or {"id": "id", "key": "key", "time": "time"}
    columns = F.struct(*[F.expr(one).alias(name) for name, one in fields.items()])
    text = F.to_json(columns, {"ignoreNullFields": "false"})
    return rows.select("key", filled(text, shape.size_bytes, shape.seed).alias("value"))


def chance(seed: int) -> Column:
    """Return a number from 0 to below 1 that is decided by the number of the row."""
    return F.shiftrightunsigned(F.xxhash64("id", F.lit(seed)), 11) / F.lit(2.0**53)


def key_column(shape: Shape) -> Column:
    """Return the key of a row: `key-0` is the most frequent one of a zipf distribution, null without keys."""
    if shape.keys is None:
        return F.lit(None).cast("string")
    if shape.distribution == "round-robin":
        number = F.col("id") % shape.keys
    elif shape.distribution == "uniform":
        number = F.floor(chance(shape.seed) * shape.keys)
    else:
        number = zipf(chance(shape.seed), shape.keys, shape.skew)
    return F.concat(F.lit("key-"), F.least(number, F.lit(shape.keys - 1)).cast("string"))


def zipf(one: Column, keys: int, skew: float) -> Column:
    """Return the rank from 0 of a key that is about as frequent as `1 / (rank + 1) ** skew`.

    It is the inverse of the continuous distribution with the density x ** -skew between 1 and keys + 1.
    """
    highest = float(keys + 1)
    if skew == 1:
        return F.floor(F.pow(F.lit(highest), one)) - 1
    span = highest ** (1 - skew) - 1
    return F.floor(F.pow(one * span + 1, F.lit(1 / (1 - skew)))) - 1


def random_hex(digits: Column, seed: int) -> Column:
    """Return this many hexadecimal digits that are decided by the number of the row; a codec finds no repetition."""
    parts = F.sequence(F.lit(0), F.greatest(F.ceil(digits / 16) - 1, F.lit(0)).cast("int"))
    text = F.transform(parts, lambda part: F.lpad(F.hex(F.xxhash64("id", part, F.lit(seed))), 16, "0"))
    return F.substring(F.array_join(text, ""), F.lit(1), digits.cast("int"))


def random_bytes(size_bytes: int, seed: int) -> Column:
    """Return a value of this size."""
    return F.unhex(random_hex(F.lit(2 * size_bytes), seed))


def filled(text: Column, size_bytes: int, seed: int) -> Column:
    """Return a JSON object with a last field `filler`, as long as is missing to the size; without it at that size."""
    room = F.lit(size_bytes - len(_FILLER_START) - len(_FILLER_END) + 1) - F.octet_length(text)
    filler = F.concat(
        F.left(text, F.length(text) - 1), F.lit(_FILLER_START), random_hex(room, seed), F.lit(_FILLER_END)
    )
    return F.when(room > 0, filler).otherwise(text)
