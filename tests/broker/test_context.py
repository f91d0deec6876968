"""gregor.broker.context: clients get the address of the listener that they connected to."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.context import NodeEndpoint, endpoint_for
from gregor.replication.partition.metadata_image import Endpoint, LiveBroker
from tests.broker.harness import FakeConnection

NODE = LiveBroker(
    3,
    {"PLAINTEXT": Endpoint("kafka.example.org", 9092, 0), "INTERNAL": Endpoint("10.0.0.3", 19092, 0)},
    "rack-1",
)


def connection(listener: str, sockname: tuple[Any, ...] = ("192.0.2.7", 9092)) -> Any:
    made: Any = FakeConnection()
    made.listener, made.sockname = listener, sockname
    return made


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ("PLAINTEXT", NodeEndpoint("kafka.example.org", 9092, "rack-1")),
        ("INTERNAL", NodeEndpoint("10.0.0.3", 19092, "rack-1")),
        ("SSL", None),
    ],
)
def test_by_listener(listener: str, expected: NodeEndpoint | None) -> None:
    assert endpoint_for(NODE, connection(listener), own=False) == expected


@pytest.mark.parametrize(
    ("sockname", "host"),
    [
        (("192.0.2.7", 9092), "192.0.2.7"),
        (("2001:db8::7", 9092, 0, 0), "2001:db8::7"),
        ((), "kafka.example.org"),
    ],
)
def test_a_broker_that_promised_no_host_is_where_the_client_found_it(sockname: tuple[Any, ...], host: str) -> None:
    assert endpoint_for(NODE, connection("PLAINTEXT", sockname), own=True) == NodeEndpoint(host, 9092, "rack-1")
