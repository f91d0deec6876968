"""DescribeCluster, every version."""

from __future__ import annotations

import pytest

from gregor.broker.answers.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeClusterRequest
from tests.broker.harness import Harness

VERSIONS = range(3)
BROKERS, CONTROLLERS = 1, 2


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cluster(harness: Harness, version: int) -> None:
    response = harness.ask(DescribeClusterRequest(), version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, harness.broker.cluster_id, 0)
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (0, "localhost", 9092, None)
    assert response.endpoint_type == BROKERS
    assert response.cluster_authorized_operations == NOT_REQUESTED
    asking = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert harness.ask(asking, version).cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("kind", "error"),
    [(CONTROLLERS, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_other_endpoints(harness: Harness, version: int, kind: int, error: ErrorCode) -> None:
    response = harness.ask(DescribeClusterRequest(endpoint_type=kind), version)
    assert (response.error_code, response.brokers) == (error, [])
    assert response.error_message
