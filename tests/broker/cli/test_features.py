"""`gregor features` without a broker: levels in force and supported, and their changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gregor.broker.__main__ import main
from gregor.broker.cli import coordinators, features
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.broker.cli.fake_client import FakeClient

Connect = Callable[..., FakeClient]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Answer the command by these functions."""

    def made(answers: Any, **versions: Any) -> FakeClient:
        client = FakeClient(answers, **versions)
        monkeypatch.setattr(features, "WireClient", lambda bootstrap, config_file: client)
        return client

    return made


def supported(name: str, low: int, high: int) -> ApiVersionsResponse.SupportedFeatureKey:
    return ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)


def finalized(name: str, level: int) -> ApiVersionsResponse.FinalizedFeatureKey:
    return ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)


def test_describe(connect: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    response = ApiVersionsResponse(
        supported_features=[supported("transaction.version", 0, 2), supported("metadata.version", 7, 99)],
        finalized_features=[finalized("transaction.version", 2), finalized("metadata.version", 30)],
        finalized_features_epoch=17,
    )
    client = connect({ApiVersionsRequest: lambda request, node_id: response})
    assert main(["features", "describe", "--node-id", "2"]) == 0
    assert client.sent[0][1] == 2
    name, low, high, level = (
        "metadata.version".ljust(40),
        "3.3-IV3".ljust(15),
        "UNKNOWN 99".ljust(15),
        "4.3-IV0".ljust(15),
    )
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        f"Feature: {name}  SupportedMinVersion: {low}  SupportedMaxVersion: {high}  FinalizedVersionLevel: {level}  "
        "Epoch: 17"
    )
    assert second.split() == [
        *("Feature:", "transaction.version", "SupportedMinVersion:", "0", "SupportedMaxVersion:", "2"),
        *("FinalizedVersionLevel:", "2", "Epoch:", "17"),
    ]


def test_features_that_are_not_finalized_have_level_0() -> None:
    response = ApiVersionsResponse(supported_features=[supported("transaction.version", 0, 2)])
    assert features.levels_of(response) == [("transaction.version", "0", "2", "0", "-")]


def update_results(**codes: int) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        results=[
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=name.replace("_", "."), error_code=code, error_message="no" if code else None
            )
            for name, code in codes.items()
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "kind", "out"),
    [
        (["upgrade", "--feature", "a.b=2"], 1, "a.b was upgraded to 2.\n"),
        (["upgrade", "--feature", " a.b = 2", "--dry-run"], 1, "a.b can be upgraded to 2.\n"),
        (["downgrade", "--feature", "a.b=1"], 2, "a.b was downgraded to 1.\n"),
        (["downgrade", "--unsafe", "--feature", "a.b=0"], 3, "a.b was downgraded to 0.\n"),
        (["disable", "--feature", "a.b"], 2, "a.b was disabled.\n"),
        (["disable", "--unsafe", "--feature", "a.b", "--dry-run"], 3, "a.b can be disabled.\n"),
    ],
)
def test_changes(
    connect: Connect, arguments: list[str], kind: int, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = connect({UpdateFeaturesRequest: lambda request, node_id: update_results(a_b=0)})
    assert main(["features", *arguments]) == 0
    assert capsys.readouterr().out == out
    [(request, node_id)] = client.sent
    assert isinstance(request, UpdateFeaturesRequest) and node_id == client.controller_id
    assert request.validate_only == ("--dry-run" in arguments)
    [change] = request.feature_updates
    assert (change.feature, change.upgrade_type) == ("a.b", kind)


def test_refusals_are_printed_and_counted(connect: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    results = update_results(a_b=ErrorCode.INVALID_UPDATE_VERSION, c=0)
    connect({UpdateFeaturesRequest: lambda request, node_id: results})
    levels = ("--feature", "a.b=2", "--feature", "c=1")
    assert main(["features", "upgrade", *levels]) == 1
    said = capsys.readouterr()
    assert said.out == "Could not upgrade a.b to 2. no\nc was upgraded to 1.\n"
    assert said.err == "gregor features: 1 out of 2 operation(s) failed.\n"
    whole = UpdateFeaturesResponse(error_code=ErrorCode.FEATURE_UPDATE_FAILED)
    connect({UpdateFeaturesRequest: lambda request, node_id: whole})
    assert main(["features", "disable", "--feature", "a.b", "--dry-run"]) == 1
    assert capsys.readouterr().out == "Can not disable a.b. FEATURE_UPDATE_FAILED\n"


def test_update_is_sent_to_the_next_controller(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "PAUSE_S", 0)

    def answer(request: Any, node_id: int | None) -> UpdateFeaturesResponse:
        client.controller_id = 2
        return update_results(a_b=0) if node_id == 2 else moved

    moved = UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message="it has moved")
    client = connect({UpdateFeaturesRequest: answer})
    assert main(["features", "upgrade", "--feature", "a.b=2"]) == 0
    assert [node_id for _, node_id in client.sent] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["upgrade"], "Give at least one --feature to upgrade"),
        (["disable"], "Give at least one --feature to disable"),
        (["upgrade", "--feature", "a"], "'a' is not of the form NAME=LEVEL"),
        (["upgrade", "--feature", "a=-1"], "with a level from 0 to 32767"),
        (["upgrade", "--feature", "a=32768"], "with a level from 0 to 32767"),
        (["downgrade", "--feature", "a=1", "--feature", "a=2"], "--feature a is given more than once"),
        (["upgrade", "--release-version", "4.0"], "gregor has no KRaft metadata version"),
        (["upgrade", "--feature", "a=1"], "older than Kafka 3.3"),
        (["describe"], "has no features"),
    ],
)
def test_wrong_arguments_and_old_brokers(
    connect: Connect, arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {UpdateFeaturesRequest: 0, ApiVersionsRequest: 2}
    connect({kind: lambda request, node_id: None for kind in old}, versions=old)
    assert main(["features", *arguments]) == 1
    assert cause in capsys.readouterr().err
