"""UpdateFeatures, every version, and what ApiVersions answers after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gregor.broker.node.store import StartError
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ApiVersionsRequest, UpdateFeaturesRequest, UpdateFeaturesResponse
from gregor.replication.store.nodes import FEATURE, encode_features
from tests.broker.handlers.test_transactions import NEW, Producer
from tests.broker.harness import Harness, running

VERSIONS = range(3)
GROUPS, TRANSACTIONS = "group.version", "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2


def update(
    harness: Harness, version: int, level: int, *, down: bool = False, name: str = TRANSACTIONS, **fields: bool
) -> UpdateFeaturesResponse:
    wanted = UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level)
    if version:
        wanted.upgrade_type = SAFE_DOWNGRADE if down else UPGRADE
    else:
        wanted.allow_downgrade = down
    response: UpdateFeaturesResponse = harness.ask(
        UpdateFeaturesRequest(feature_updates=[wanted], timeout_ms=5000, **fields), version
    )
    return response


def finalized(harness: Harness) -> tuple[int, dict[str, tuple[int, int]]]:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    response = harness.ask(request, 4)
    return response.finalized_features_epoch, {
        one.name: (one.min_version_level, one.max_version_level) for one in response.finalized_features
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_level_falls_and_rises_with_growing_epochs(harness: Harness, version: int) -> None:
    epoch, levels = finalized(harness)
    assert levels == {GROUPS: (1, 1), TRANSACTIONS: (2, 2)}, "the store of a single broker"
    response = update(harness, version, 0, down=True)
    assert (response.error_code, response.error_message) == (0, None)
    listed = [(one.feature, one.error_code, one.error_message) for one in response.results]
    assert listed == ([(TRANSACTIONS, 0, None)] if version < 2 else [])
    assert finalized(harness) == (epoch + 3, {GROUPS: (1, 1)}), "after both phases"
    assert harness.broker.features.transaction_version() == 0
    assert update(harness, version, 2).error_code == 0
    assert finalized(harness) == (epoch + 4, {GROUPS: (1, 1), TRANSACTIONS: (2, 2)})
    assert harness.broker.features.transaction_version() == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_refusals_are_errors_of_the_request(harness: Harness, version: int) -> None:
    before = finalized(harness)
    for response in (
        update(harness, version, 0),
        update(harness, version, 3),
        update(harness, version, 1, name="metadata.version"),
    ):
        assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
        assert response.error_message.startswith("Invalid update version")
    assert finalized(harness) == before


@pytest.mark.parametrize("version", [1, 2])
def test_validation_alone_and_unknown_types(harness: Harness, version: int) -> None:
    before = finalized(harness)
    assert update(harness, version, 0, down=True, validate_only=True).error_code == 0
    wanted = UpdateFeaturesRequest.FeatureUpdateKey(feature=TRANSACTIONS, max_version_level=0, upgrade_type=9)
    response = harness.ask(UpdateFeaturesRequest(feature_updates=[wanted]), version)
    assert "upgrade type is unknown" in response.error_message
    assert finalized(harness) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_another_broker_is_the_controller(harness: Harness, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness.node.controller, "cluster", None)
    assert update(harness, version, 0, down=True).error_code == ErrorCode.NOT_CONTROLLER


def test_downgrade_ends_the_open_transactions_of_the_newer_protocol(harness: Harness, topic: str) -> None:
    harness.create_topic(topic)
    older, newer = Producer(harness, topic), Producer(harness, f"{topic}-newer")
    assert older.add(topic, 0) == [ErrorCode.NONE]
    assert newer.produce(topic, b"x", version=NEW).error_code == 0
    assert (older.state(), newer.state()) == ("Ongoing", "Ongoing")
    assert update(harness, 2, 0, down=True).error_code == 0
    assert finalized(harness)[1] == {GROUPS: (1, 1)}
    newer.until_ended()
    assert (older.state(), newer.state()) == ("Ongoing", "CompleteAbort")
    assert older.end() == ErrorCode.NONE
    assert update(harness, 2, 2).error_code == 0


def test_broker_does_not_start_with_a_level_that_it_does_not_serve(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        levels = {TRANSACTIONS: 2, "later.version": 1}
        harness.run(harness.node.store.set(FEATURE, encode_features(levels)))
    later = Harness(tmp_path)
    try:
        with pytest.raises(StartError, match=r"later\.version=1, which this release does not serve"):
            later.start()
    finally:
        later.stop()


def test_store_of_an_earlier_release_stays_without_features(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        harness.run(harness.node.store.set(FEATURE, encode_features({})))
    with running(tmp_path) as harness:
        assert finalized(harness) == (1, {})
