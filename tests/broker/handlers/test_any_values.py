"""Requests of all APIs and versions with values from the far corners of their types: answered, never an exception.

Other tests cover the limits. These check that no null, negative number, name of no topic or unknown id makes a handler
fail, and that every answer can be encoded in its version.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from gregor.protocol.codec.model import Field, Struct
from gregor.protocol.messages import request_class, schema
from tests.broker.harness import Harness, batch

LIMITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
ROUNDS = 8


class Maker:
    """Makes requests; the names and ids of known topics and groups come up often."""

    def __init__(self, rng: random.Random, topic_id: bytes) -> None:
        self.rng = rng
        self.topic_id = topic_id

    def request(self, key: int, version: int) -> Any:
        class_: Any = request_class(key)
        return self._fill(class_, class_, schema(class_.__name__), version)

    def _fill(self, outer: Any, class_: Any, struct: Struct, version: int) -> Any:
        values = {
            field.name: self._value(outer, field, version)
            for field in struct.fields
            if version in field.versions and self.rng.random() < 0.9
        }
        return class_(**values)

    def _value(self, outer: Any, field: Field, version: int) -> Any:
        if version in field.nullable and self.rng.random() < 0.2:
            return None
        if field.is_array:
            return [self._one(outer, field, version) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        return self._one(outer, field, version)

    def _one(self, outer: Any, field: Field, version: int) -> Any:
        kind, rng = field.element, self.rng
        if field.struct is not None:
            return self._fill(outer, getattr(outer, field.struct.name), field.struct, version)
        if field.name.endswith("_ms") and kind == "int32":
            return rng.choice((-1, 0, 1, 20))  # waiting is tested elsewhere
        if kind in LIMITS:
            limit = 1 << LIMITS[kind]
            return rng.choice((-limit, -2, -1, 0, 0, 1, 2, limit - 1))
        if kind == "records":
            good = batch(b"x")
            return rng.choice((good, good, good[:50], good[:61], b"", None, good + b"\0", bytes(100)))
        pool: dict[str, tuple[Any, ...]] = {
            "bool": (True, False),
            "string": (
                "known",
                "known",
                "readers",
                "",
                "..",
                "__consumer_offsets",
                "x" * 300,
                "\0ü",
                "0",
                "retention.ms",
            ),
            "bytes": (b"", b"\0" * 10),
            "uuid": (self.topic_id, bytes(16), b"\x07" * 16),
            "float64": (0.0, -1.0),
            "uint16": (0, 65535),
            "uint32": (0, 2**32 - 1),
        }
        return rng.choice(pool[kind])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_is_answered(harness: Harness, seed: int) -> None:
    state = harness.broker.metadata.topic("known")
    topic_id = harness.create_topic("known", partitions=2) if state is None else state.topic_id
    maker = Maker(random.Random(seed), topic_id)
    harness.run(ask_all(harness, maker), timeout_s=60)
    # And the broker still works.
    harness.create_topic(f"after-{seed}")
    assert harness.produce(f"after-{seed}", b"x").error_code == 0


async def ask_all(harness: Harness, maker: Maker) -> None:
    for entry in harness.broker.handlers.values():
        for _ in range(ROUNDS):
            version = maker.rng.randint(entry.min_version, entry.max_version)
            request = maker.request(entry.key, version)
            try:
                await asyncio.wait_for(harness.answer(request, version, "tests"), 0.05)
            except TimeoutError:
                continue  # it waits for others
            except Exception as error:
                error.add_note(f"version {version} of {request}")
                raise
