"""ApiVersions: the answer lists exactly the versions that are served, and every served version can be coded."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import APIS, ApiVersionsRequest, ApiVersionsResponse, request_class, response_class
from tests.broker.harness import Harness, Wire

VERSIONS = range(6)
# Spoken by controllers, not served to clients.
CONTROLLERS = {4, 5, 6}
# InitProducerId 6 is in Apache Kafka 4.3's definitions, marked as not stable, and not served there either (KIP-939).
NEWEST_STABLE = {22: 5}


def ask(harness: Harness, version: int, name: str = "librdkafka", software: str = "2.3.0") -> ApiVersionsResponse:
    request = ApiVersionsRequest()
    if version >= 3:
        request.client_software_name, request.client_software_version = name, software
    response: ApiVersionsResponse = harness.ask(request, version)
    return response


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_told_is_registered_and_can_be_coded(harness: Harness, version: int) -> None:
    response = ask(harness, version)
    assert response.error_code == 0
    told = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert len(told) == len(response.api_keys)
    assert told == {key: (one.min_version, one.max_version) for key, one in harness.broker.handlers.items()}
    assert told.keys() <= set(APIS) - CONTROLLERS
    for key, (oldest, newest) in told.items():
        request: Any = request_class(key)
        response_of: Any = response_class(key)
        assert request.MAX_VERSION == response_of.MAX_VERSION
        assert oldest >= request.MIN_VERSION
        assert newest == NEWEST_STABLE.get(key, request.MAX_VERSION)
    assert told[0][0] == 0  # librdkafka requires Produce 0 before it uses any newer version


@pytest.mark.parametrize("version", VERSIONS)
def test_features(harness: Harness, version: int) -> None:
    response = ask(harness, version)
    supported = [(one.name, one.min_version, one.max_version) for one in response.supported_features]
    # Before version 4 clients cannot decode a lowest level of 0.
    assert supported == ([("group.version", 0, 1), ("transaction.version", 0, 2)] if version >= 4 else [])
    finalized = [(one.name, one.min_version_level, one.max_version_level) for one in response.finalized_features]
    assert finalized == ([("group.version", 1, 1), ("transaction.version", 2, 2)] if version >= 3 else [])
    assert response.finalized_features_epoch == (0 if version >= 3 else -1)
    assert not response.zk_migration_ready


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("bad", ["", "-x", "x-", "with space", "tab\t", "über", ".", "a" * 5 + "\n"])
def test_names_of_client_software(harness: Harness, version: int, bad: str) -> None:
    assert ask(harness, version, "apache-kafka-java", "4.3.1").error_code == 0
    assert ask(harness, version, "x", "1").error_code == 0
    for name, software in ((bad, "1.0"), ("x", bad)):
        response = ask(harness, version, name, software)
        assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])


def test_misrouted_client_is_told_to_begin_anew(harness: Harness) -> None:
    """It names the cluster and the broker that it expects, once it knows them (KIP-1242)."""
    here, broker_id = harness.broker.cluster_id, harness.broker.broker_id
    for cluster, node, error in (
        (None, -1, ErrorCode.NONE),
        (None, broker_id + 1, ErrorCode.NONE),
        (here, broker_id, ErrorCode.NONE),
        (here, broker_id + 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", broker_id, ErrorCode.REBOOTSTRAP_REQUIRED),
    ):
        request = ApiVersionsRequest(
            client_software_name="x", client_software_version="1", cluster_id=cluster, node_id=node
        )
        response: ApiVersionsResponse = harness.ask(request, 5)
        assert response.error_code == error
        assert bool(response.api_keys) == (error is ErrorCode.NONE)


def test_over_a_connection(harness: Harness) -> None:
    wire = Wire(harness)
    for version in VERSIONS:
        request = ApiVersionsRequest(client_software_name="kcat", client_software_version="1.7.1")
        assert len(wire.ask(request, version).api_keys) == len(harness.broker.handlers)
    wire.close()
