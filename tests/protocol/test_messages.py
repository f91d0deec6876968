"""gregor.protocol.messages: names, keys, headers; a few messages against bytes written out by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gregor.protocol import messages, schema
from gregor.protocol.messages import (
    ApiMessage,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitKey,
    ProduceRequest,
    RequestHeader,
    ResponseHeader,
)

SERVED = [*range(4), *range(8, 52), 57, 60, 61, 65, 66, 68, 69, 71, 72, 74, 75]
OF_THE_CONTROLLER = [4, 5, 6, 7, 56, 67]


def test_every_api_of_a_single_broker_is_coded() -> None:
    assert sorted(messages.APIS) == sorted([*SERVED, *OF_THE_CONTROLLER])


def test_every_schema_file_is_registered() -> None:
    (folder,) = schema.__path__
    files = {path.stem for path in Path(folder).glob("*.py")} - {"__init__"}
    registered = {f"k{key:02}_{api}" for key, api in messages.APIS.items()} | set(messages.OTHERS.values())
    assert files == registered


def test_key_leads_to_classes() -> None:
    assert messages.request_class(0) is ProduceRequest
    assert messages.response_class(18) is ApiVersionsResponse
    assert messages.request_class(999) is None
    assert messages.response_class(-1) is None
    for key in messages.APIS:
        for class_ in (messages.request_class(key), messages.response_class(key)):
            assert class_ is not None and key == class_.API_KEY and issubclass(class_, ApiMessage)


def test_request_and_response_have_the_same_versions() -> None:
    for key in messages.APIS:
        request, response = messages.request_class(key), messages.response_class(key)
        assert request is not None and response is not None
        assert (request.MIN_VERSION, request.MAX_VERSION) == (response.MIN_VERSION, response.MAX_VERSION)
        assert request.FLEXIBLE_FROM == response.FLEXIBLE_FROM


def test_header_versions() -> None:
    assert [messages.request_header_version(0, version) for version in (3, 8, 9, 13)] == [1, 1, 2, 2]
    assert [messages.response_header_version(0, version) for version in (3, 8, 9, 13)] == [0, 0, 1, 1]
    # The one exception: a client must read this answer before it knows what the broker speaks (KIP-511).
    assert [messages.request_header_version(18, version) for version in (0, 2, 3, 99)] == [1, 1, 2, 2]
    assert [messages.response_header_version(18, version) for version in (0, 2, 3, 99)] == [0, 0, 0, 0]
    for function in (messages.request_header_version, messages.response_header_version):
        with pytest.raises(KeyError):
            function(999, 0)


def test_unknown_name() -> None:
    with pytest.raises(ImportError):
        from gregor.protocol.messages import NoSuchRequest  # type: ignore[attr-defined] # noqa: F401


def test_bytes_of_a_header() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=5, client_id="me")
    # The client id keeps its int16 length in the flexible version.
    assert header.encode(2) == b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x02me\x00"
    assert header.encode(1) == b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x02me"
    assert RequestHeader.decode(b"\x00\x00\x00\x09\x00\x00\x00\x05\xff\xff\x00", 2)[0].client_id is None
    assert ResponseHeader(correlation_id=5).encode(1) == b"\x00\x00\x00\x05\x00"


def test_bytes_of_a_flexible_request() -> None:
    request = ApiVersionsRequest(client_software_name="kcat", client_software_version="1")
    assert request.encode(3) == b"\x05kcat\x021\x00"
    assert request.encode(2) == b""


def test_bytes_of_tags() -> None:
    response = ApiVersionsResponse(finalized_features_epoch=0)
    head = b"\x00\x00\x01\x00\x00\x00\x00"
    assert response.encode(3) == head + b"\x01\x01\x08" + bytes(8) + b""
    request = FetchRequest(cluster_id="c", replica_state=FetchRequest.ReplicaState(replica_id=1, replica_epoch=2))
    tags = b"\x02\x00\x02\x02c\x01\x0d\x00\x00\x00\x01" + bytes(7) + b"\x02\x00"
    assert request.encode(15).endswith(tags)


def test_bytes_of_an_old_produce_request() -> None:
    partition = ProduceRequest.PartitionProduceData(index=2, records=b"rec")
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    body = b"\xff\xff\x00\x00\x03\xe8\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01"
    assert request.encode(0) == body + b"\x00\x00\x00\x02\x00\x00\x00\x03rec"
    # Version 3 puts the transactional id, here null, in front.
    assert request.encode(3) == b"\xff\xff" + request.encode(2)


def test_bytes_of_the_oldest_requests() -> None:
    """As Kafka 0.9 sent them."""
    wanted = FetchRequest.FetchPartition(partition=2, fetch_offset=5, partition_max_bytes=1000)
    fetch = FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=7, topics=[FetchRequest.FetchTopic(topic="t", partitions=[wanted])]
    )
    partition = b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x02"
    assert fetch.encode(0) == b"\xff" * 4 + b"\0\0\0\x64\0\0\0\1" + partition + b"\0" * 7 + b"\5\0\0\3\xe8"
    # The limit of the whole answer came with version 3.
    assert fetch.encode(3)[12:16] == b"\0\0\0\7" and fetch.encode(2) == fetch.encode(0)
    offsets = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=2, timestamp=-1, max_num_offsets=3)
                ],
            )
        ],
    )
    assert offsets.encode(0) == b"\xff" * 4 + partition + b"\xff" * 8 + b"\0\0\0\3"
    found = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=2, old_style_offsets=[7, 0])
    answer = ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[found])])
    assert answer.encode(0) == partition + b"\0\0" + b"\0\0\0\2" + bytes(7) + b"\7" + bytes(8)


def test_bytes_of_an_offset_key() -> None:
    assert OffsetCommitKey(group="g", topic="t", partition=1).encode(1) == b"\x00\x01g\x00\x01t\x00\x00\x00\x01"


def test_import_loads_no_schema_and_no_compiler() -> None:
    """A broker must be up in 0.3 s: only what is used is made."""
    code = (
        "import sys, gregor.protocol.messages as m\n"
        "before = sorted(name for name in sys.modules if name.startswith('gregor.protocol.'))\n"
        "m.HeartbeatRequest\n"
        "schemas = sorted(name for name in sys.modules if name.startswith('gregor.protocol.schema.'))\n"
        "print(before, schemas)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['gregor.protocol.messages'] ['gregor.protocol.schema.k12_heartbeat']\n"


def test_replaced_fields_change_a_copy_alone() -> None:
    request = OffsetCommitKey(group="g", topic="t", partition=1)
    assert request.replaced(topic="u", partition=2) == OffsetCommitKey(group="g", topic="u", partition=2)
    assert request == OffsetCommitKey(group="g", topic="t", partition=1)
    with pytest.raises(AttributeError):
        request.replaced(offset=1)


def test_replaced_shared_default_is_an_ordinary_object() -> None:
    shared = FetchRequest().replica_state
    assert shared.replaced(replica_epoch=3).replica_epoch == 3
    assert FetchRequest().replica_state.replica_epoch == -1
