"""`gregor configs` with SCRAM credentials, without a broker: salted requests, refusals that hide passwords, output."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.cli import configs, scram_configs
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from gregor.protocol.sasl.scram import MECHANISMS, salted_password
from tests.broker.cli.fake_client import FakeClient

SECRET = "secret-word"


def test_request_has_the_hash_of_the_password_with_its_own_salt() -> None:
    changes = {"SCRAM-SHA-256": f"iterations=8192,password={SECRET}", "SCRAM-SHA-512": f"password={SECRET}"}
    request = scram_configs.alteration("alice", changes)
    assert request.deletions == []
    assert [(one.name, one.mechanism, one.iterations) for one in request.upsertions] == [
        ("alice", 1, 8192),
        ("alice", 2, 4096),
    ]
    for one, mechanism in zip(request.upsertions, MECHANISMS.values(), strict=True):
        assert one.salted_password == salted_password(mechanism, SECRET, one.salt, one.iterations)
    assert request.upsertions[0].salt != request.upsertions[1].salt
    assert SECRET not in repr(request) and SECRET not in repr(scram_configs.parse_password("k", f"password={SECRET}"))


def test_iterations_of_minus_one_are_the_default_and_a_password_may_have_any_character() -> None:
    assert scram_configs.parse_password("k", "iterations=-1,password=a,b=c d") == (4096, "a,b=c d")
    assert scram_configs.parse_password("k", "password=iterations=5") == (4096, "iterations=5")


def test_deletion_names_the_mechanism() -> None:
    request = scram_configs.alteration("alice", {"SCRAM-SHA-512": None})
    assert request.upsertions == []
    assert [(one.name, one.mechanism) for one in request.deletions] == [("alice", 2)]


ADD = f"SCRAM-SHA-256=[password={SECRET}]"


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--user", "a", "--add-config", f"{ADD},producer_byte_rate=1"], "give two commands"),
        (["--user", "a", "--client", "c", "--add-config", ADD], "are of one user"),
        (["--user-defaults", "--add-config", ADD], "are of one user"),
        (["--entity-type", "users", "--add-config", ADD], "are of one user"),
        (["--client", "c", "--delete-config", "SCRAM-SHA-256"], "are of one user"),
        (["--user", "a", "--add-config", f"SCRAM-SHA-1=[password={SECRET}]"], "mechanisms are SCRAM-SHA-256 and"),
        (["--user", "a", "--add-config", f"SCRAM-SHA-256=[iterations=x,password={SECRET}]"], "=(hidden): give ["),
        (["--user", "a", "--add-config", f"SCRAM-SHA-256=[{SECRET}]"], "=(hidden): give ["),
        (["--user", "a", "--add-config", f"SCRAM-SHA-256=[iterations=100,password={SECRET}]"], "from 4096 to 16384"),
        (["--user", "a", "--add-config", f"SCRAM-SHA-256=iterations=8192,password={SECRET}"], "put values with commas"),
        (["--user", "a", "--add-config", f"SCRAM-SHA-256=password={SECRET}"], "put values with commas"),
    ],
)
def test_wrong_arguments_are_refused_without_the_password(
    arguments: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert configs.main(["--alter", *arguments]) == 1
    printed = capsys.readouterr()
    assert cause in printed.err
    assert SECRET not in printed.err + printed.out


def altered(error_code: int = 0, text: str | None = None) -> FakeClient:
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
        user="alice", error_code=error_code, error_message=text
    )
    return FakeClient(
        {AlterUserScramCredentialsRequest: lambda *_: AlterUserScramCredentialsResponse(results=[result])}
    )


def test_alteration_goes_to_the_controller_and_is_confirmed(capsys: pytest.CaptureFixture[str]) -> None:
    client = altered()
    scram_configs.alter(client, "alice", scram_configs.alteration("alice", {"SCRAM-SHA-256": None}))
    assert [node for _, node in client.sent] == [1]
    assert capsys.readouterr().out == "Completed updating config for user alice.\n"


def test_refusal_of_the_broker_is_an_error() -> None:
    client = altered(ErrorCode.RESOURCE_NOT_FOUND, "there is none to delete")
    with pytest.raises(scram_configs.BrokerRefusal, match="there is none to delete"):
        scram_configs.alter(client, "alice", scram_configs.alteration("alice", {"SCRAM-SHA-256": None}))


def test_description_has_the_lines_of_kafkas_command(capsys: pytest.CaptureFixture[str]) -> None:
    make = DescribeUserScramCredentialsResponse
    results = [
        make.DescribeUserScramCredentialsResult(
            user="alice",
            credential_infos=[
                make.CredentialInfo(mechanism=1, iterations=8192),
                make.CredentialInfo(mechanism=2, iterations=4096),
            ],
        ),
        make.DescribeUserScramCredentialsResult(user="bob", error_code=ErrorCode.RESOURCE_NOT_FOUND),
    ]

    def answer(request: Any, node: int | None) -> DescribeUserScramCredentialsResponse:
        return make(results=results)

    client = FakeClient({DescribeUserScramCredentialsRequest: answer})
    scram_configs.describe(client, None)
    scram_configs.describe(client, "alice")
    asked = [[user.name for user in one.users] for one in client.requests(DescribeUserScramCredentialsRequest)]
    assert asked == [[], ["alice"]]
    line = "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192, "
    assert capsys.readouterr().out == f"{line}SCRAM-SHA-512=iterations=4096\n" * 2
