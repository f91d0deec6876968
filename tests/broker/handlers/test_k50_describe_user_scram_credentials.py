"""DescribeUserScramCredentials: its results, and its cost for many users."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gregor.broker.handlers.k50_describe_user_scram_credentials import describe_user_scram_credentials
from gregor.broker.jobs.turns import LoopGate
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import DescribeUserScramCredentialsRequest as Request
from tests.broker.harness import errors

USERS = {
    "bob": {"SCRAM-SHA-512": SimpleNamespace(iterations=8192)},
    "anna": {"SCRAM-SHA-512": SimpleNamespace(iterations=5000), "SCRAM-SHA-256": SimpleNamespace(iterations=4096)},
}


def described(names: list[str] | None) -> list[Any]:
    async def ask() -> list[Any]:
        broker: Any = SimpleNamespace(
            gate=LoopGate(), security=SimpleNamespace(credentials=SimpleNamespace(users=USERS))
        )
        request = Request(users=None if names is None else [Request.UserName(name=name) for name in names])
        call: Any = None
        return list((await describe_user_scram_credentials(broker, request, call)).results)

    return asyncio.run(ask())


def test_all_users_are_described_where_none_is_named() -> None:
    for names in (None, []):
        anna, bob = described(names)
        assert (anna.user, [(one.mechanism, one.iterations) for one in anna.credential_infos]) == (
            "anna",
            [(1, 4096), (2, 5000)],
        )
        assert (bob.user, [(one.mechanism, one.iterations) for one in bob.credential_infos]) == ("bob", [(2, 8192)])


def test_users_that_are_unknown_or_named_twice_are_errors() -> None:
    results = described(["bob", "eve", "anna", "eve", "carl"])
    assert [one.user for one in results] == ["bob", "eve", "anna", "carl"]
    assert errors(*(one.error_code for one in results if one.error_code)) == [
        ErrorCode.DUPLICATE_RESOURCE.name,
        ErrorCode.RESOURCE_NOT_FOUND.name,
    ]


def test_many_users_cost_a_step_for_each() -> None:
    comparisons = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

    assert len(described([Name(f"user-{number}") for number in range(500)])) == 500
    assert comparisons < 5000
