"""The codecs that work in steps: beside those that do it in one piece, and never long between two steps."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from gregor.protocol import messages
from gregor.protocol.codec.source import NUMBERS_PER_STEP
from gregor.protocol.errors import MalformedMessage, UnsupportedField
from gregor.protocol.messages import (
    AlterReplicaLogDirsRequest,
    FetchResponse,
    HeartbeatRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
)
from gregor.protocol.turns import ITEMS_PER_STEP
from tests.protocol.codec.test_compiler import EVERY_TYPE, EVERY_TYPE_CLASS
from tests.protocol.message_values import every_version, random_message, random_of_class


def drain(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return the result, and the number of pauses before it."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def encoded(message: Any, version: int) -> tuple[bytes, int]:
    out = bytearray()
    _, pauses = drain(message.encode_in_steps(out, version))
    return bytes(out), pauses


@pytest.mark.parametrize(("name", "version"), every_version())
def test_equals_the_codec_in_one_piece(name: str, version: int) -> None:
    class_ = getattr(messages, name)
    random = Random(version)
    message = random_message(random, name, version)
    data = message.encode(version)
    assert encoded(message, version)[0] == data
    assert drain(class_.decode_in_steps(b"head" + data + b"tail", version, 4))[0] == (message, 4 + len(data))
    if data:
        with pytest.raises(MalformedMessage):
            drain(class_.decode_in_steps(data[: random.randrange(len(data))], version))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_type_equals_the_codec_in_one_piece(version: int) -> None:
    random = Random(version)
    for _ in range(20):
        message = random_of_class(random, EVERY_TYPE, EVERY_TYPE_CLASS, version)
        data = message.encode(version)
        assert encoded(message, version)[0] == data
        assert drain(EVERY_TYPE_CLASS.decode_in_steps(data, version))[0] == (message, len(data))


@pytest.mark.parametrize("version", [1, 6])
@pytest.mark.parametrize("topics", [1, 10, 2000])
def test_pauses_however_the_elements_are_spread(topics: int, version: int) -> None:
    partitions = [ListOffsetsRequest.ListOffsetsPartition(partition_index=index) for index in range(2000 // topics)]
    named = [ListOffsetsRequest.ListOffsetsTopic(name=f"t{number}", partitions=partitions) for number in range(topics)]
    request = ListOffsetsRequest(topics=named)
    data, pauses = encoded(request, version)
    assert pauses >= 2000 // ITEMS_PER_STEP
    (decoded, _), pauses = drain(ListOffsetsRequest.decode_in_steps(data, version))
    assert decoded == request
    assert pauses >= 2000 // ITEMS_PER_STEP


@pytest.mark.parametrize("count", [0, 1, NUMBERS_PER_STEP, NUMBERS_PER_STEP + 1, 5 * NUMBERS_PER_STEP])
@pytest.mark.parametrize("version", [1, 2])
def test_pauses_in_arrays_of_numbers(count: int, version: int) -> None:
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="t", partitions=list(range(count)))
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/a", topics=[topic])]
    )
    data, pauses = encoded(request, version)
    assert data == request.encode(version)
    assert pauses == max(0, -(-count // NUMBERS_PER_STEP) - 1)
    (decoded, _), pauses = drain(AlterReplicaLogDirsRequest.decode_in_steps(data, version))
    assert decoded == request
    assert pauses == max(0, -(-count // NUMBERS_PER_STEP) - 1)


def test_a_message_without_arrays_takes_one_step() -> None:
    data, pauses = encoded(HeartbeatRequest(group_id="g"), 4)
    assert pauses == 0
    assert drain(HeartbeatRequest.decode_in_steps(data, 4)) == ((HeartbeatRequest(group_id="g"), len(data)), 0)


def test_refusals_are_the_same() -> None:
    with pytest.raises(MalformedMessage, match=r"MetadataRequest v0: MetadataRequest\.topics"):
        drain(MetadataRequest.decode_in_steps(b"\x00\x00\x01\x00", 0))
    with pytest.raises(MalformedMessage, match="no version 99"):
        drain(MetadataRequest.decode_in_steps(b"", 99))
    with pytest.raises(UnsupportedField, match="no version 99"):
        encoded(MetadataRequest(), 99)
    with pytest.raises(UnsupportedField, match="name may not be null"):
        encoded(MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name=None)]), 11)
    with pytest.raises(ValueError, match="MetadataResponse v8"):
        encoded(MetadataResponse(controller_id=2**40), 8)


def test_what_lies_in_files_is_not_encoded_in_steps() -> None:
    class Region:
        size_bytes = 300

    partition = FetchResponse.PartitionData(records=Region())
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])])
    with pytest.raises(TypeError, match="splices"):
        encoded(response, 12)
