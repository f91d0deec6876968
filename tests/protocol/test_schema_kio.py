"""protocol.messages against kio, Kafka's schema as Python classes made by other people: same bytes, same values."""

from __future__ import annotations

import datetime
import uuid
from io import BytesIO
from random import Random
from typing import Any

import pytest
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from gregor.protocol import messages
from gregor.protocol.codec.model import Message, Struct
from tests.protocol.message_values import random_message

FROM_4_4 = {"ApiVersions": 5, "DeleteGroups": 3, "TxnOffsetCommit": 6}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def kio_versions() -> list[tuple[str, int, str, Any]]:
    """(our name, version, kio's name, kio's kind) of what both know."""
    found = []
    for name in messages.message_names():
        kind = next((kind for kind in ("Request", "Response") if name.endswith(kind)), None)
        api_key = messages.schema(name).api_key
        if kind is not None and api_key is not None:
            entity, their_kind = messages.APIS[api_key], EntityType[kind.lower()]
        elif name.endswith("Header"):
            entity = "request_header" if name == "RequestHeader" else "response_header"
            their_kind = EntityType.header
        else:
            continue
        for version in messages.schema(name).versions:
            if their_kind in schema_name_map.get(entity, {}).get(version, {}):
                found.append((name, version, entity, their_kind))
    return found


def tame(message: Message, struct: Struct, value: Any, version: int) -> None:
    """Brings values into what kio's richer types can hold: known error codes, and times since 1970 or -1."""
    for field in struct.fields:
        item = getattr(value, field.name)
        if version not in field.versions or item is None:
            continue
        if field.struct is not None:
            for inner in item if field.is_array else [item]:
                if item is not getattr(type(value)(), field.name):
                    tame(message, field.struct, inner, version)
        elif field.name.endswith("error_code"):
            setattr(value, field.name, abs(item) % 100)
        elif field.element == "int64" and "time" in field.name:
            setattr(value, field.name, max(-1, item % 10**12))


def plain(value: Any) -> Any:
    """A value of kio as the plain one that it stands for on the wire."""
    match value:
        case datetime.datetime():
            return round((value - EPOCH) / datetime.timedelta(milliseconds=1))
        case datetime.timedelta():
            return round(value / datetime.timedelta(milliseconds=1))
        case uuid.UUID():
            return value.bytes
        case KioErrorCode():
            return int(value.value)
        case _:
            return value


def assert_same_values(struct: Struct, ours: Any, theirs: Any, version: int, where: str) -> None:
    for field in struct.fields:
        if version not in field.versions:
            continue
        path = f"{where}.{field.name}"
        # kio leaves the unit out where the type has one.
        name = field.name if hasattr(theirs, field.name) else field.name.removesuffix("_ms")
        our, their = getattr(ours, field.name), getattr(theirs, name.replace("_2pc", "2_pc"))
        if field.struct is not None and our is not None:
            pairs = zip(our, their, strict=True) if field.is_array else [(our, their)]
            for our_item, their_item in pairs:
                assert_same_values(field.struct, our_item, their_item, version, path)
        elif field.is_array and our is not None:
            assert our == [plain(item) for item in their], path
        elif their is None:
            # No id and no time have a value of their own on the wire.
            assert our in (None, bytes(16), -1), path
        else:
            assert our == plain(their), path


KNOWN_TO_BOTH = kio_versions()


def test_kio_knows_what_the_4_x_releases_serve() -> None:
    missing = {
        (name, version)
        for name in messages.message_names()
        for version in messages.schema(name).versions
        if (name, version) not in {(known, at) for known, at, _, _ in KNOWN_TO_BOTH}
    }
    # Messages of brokers with ZooKeeper are not in kio any more, and the records of internal topics never were.
    dropped = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown")
    dropped += tuple(name for name in messages.OTHERS if name.endswith(("Key", "Value")))
    dropped += ("ConsumerProtocol",)
    missing = {(name, version) for name, version in missing if not name.startswith(dropped)}
    # Nor are the versions that came with 4.4.
    missing -= {(f"{api}{kind}", at) for api, at in FROM_4_4.items() for kind in ("Request", "Response")}
    # Of the others it lacks only versions that come before all those it knows.
    oldest = {name: min(at for known, at, _, _ in KNOWN_TO_BOTH if known == name) for name, _ in missing}
    assert [(name, version) for name, version in missing if version > oldest[name]] == []
    assert set(oldest.values()) <= {1, 2, 3, 4}


@pytest.mark.parametrize(("name", "version", "entity", "kind"), KNOWN_TO_BOTH)
def test_same_bytes_and_values(name: str, version: int, entity: str, kind: Any) -> None:
    schema = messages.schema(name)
    their_class = load_entity_schema(entity, version, kind)
    for seed in range(3):
        message = random_message(Random(seed), name, version)
        tame(schema, schema, message, version)
        encoded = message.encode(version)
        theirs, size_bytes = entity_reader(their_class)(encoded, 0)
        assert size_bytes == len(encoded)
        assert_same_values(schema, message, theirs, version, name)
        buffer = BytesIO()
        entity_writer(their_class)(buffer, theirs)
        assert buffer.getvalue() == encoded
