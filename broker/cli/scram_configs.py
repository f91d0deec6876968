"""The SCRAM credentials of users, as kafka-configs.sh sets, removes and shows them (KIP-554, keys 50 and 51).

A password is hashed here with a new salt: neither the request nor an error has it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.quota_configs import Part
from gregor.broker.cli.tables import Column, on_terminal, print_table
from gregor.broker.cli.wire import BrokerRefusal, WireClient, check_code
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from gregor.protocol.sasl.scram import (
    BY_NUMBER,
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    SALT_BYTES,
    salted_password,
)

PREFIX = "SCRAM-"
"""Keys with this beginning are mechanisms; a quota has no such name."""
_DEFAULT = "-1"
"""Iterations with which Kafka's command means its default."""
_VALUE = re.compile(r"(?:iterations=(-?[0-9]+),)?password=(.+)", re.DOTALL)


class Password(NamedTuple):
    """A new credential. The password is not in its text."""

    iterations: int
    text: str

    def __repr__(self) -> str:
        return f"Password(iterations={self.iterations})"


def is_scram(changes: Mapping[str, str | None]) -> bool:
    """Return whether settings are credentials. Raises UsageError for credentials among quotas: each has a request of
    its own, so that one of them could fail alone."""
    scram = [key for key in changes if key.startswith(PREFIX)]
    if scram and len(scram) < len(changes):
        raise click.UsageError("SCRAM credentials and quotas cannot be altered at once; give two commands.")
    return bool(scram)


def user_of(parts: Sequence[Part]) -> str:
    """Return the user whose credentials are altered. Raises UsageError."""
    if len(parts) != 1 or parts[0].kind != "user" or not parts[0].name:
        raise click.UsageError("SCRAM credentials are of one user: --entity-type users --entity-name NAME, or --user.")
    return parts[0].name


def alteration(user: str, changes: Mapping[str, str | None]) -> AlterUserScramCredentialsRequest:
    """Return the request that sets and removes (None) credentials, by mechanism; this hashes for milliseconds.

    Raises CommandError.
    """
    make = AlterUserScramCredentialsRequest
    request = make(deletions=[], upsertions=[])
    for key, text in changes.items():
        mechanism = MECHANISMS.get(key)
        if mechanism is None:
            raise CommandError(f"'{key}' is not a mechanism of SCRAM; mechanisms are {' and '.join(MECHANISMS)}.")
        if text is None:
            request.deletions.append(make.ScramCredentialDeletion(name=user, mechanism=mechanism.number))
            continue
        password = parse_password(key, text)
        salt = secrets.token_bytes(SALT_BYTES)
        request.upsertions.append(
            make.ScramCredentialUpsertion(
                name=user,
                mechanism=mechanism.number,
                iterations=password.iterations,
                salt=salt,
                salted_password=salted_password(mechanism, password.text, salt, password.iterations),
            )
        )
    return request


def parse_password(key: str, text: str) -> Password:
    """Parse `iterations=8192,password=..` or `password=..`. Raises CommandError, without the text."""
    match = _VALUE.fullmatch(text)
    if match is None:
        raise CommandError(f"{key}=(hidden): give [password=..] or [iterations=8192,password=..].")
    iterations = MIN_ITERATIONS if match[1] in (None, _DEFAULT) else int(match[1])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise CommandError(f"{key}: iterations={iterations} must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}.")
    return Password(iterations, match[2])


def alter(client: WireClient, user: str, request: AlterUserScramCredentialsRequest) -> None:
    """Set and remove the credentials: all of them, or none if the broker refuses one."""
    answer: AlterUserScramCredentialsResponse = client.send(request, _controller(client))
    for result in answer.results:
        check_code(result.error_code, result.error_message)
    print(f"Completed updating config for user {user}.")


def describe(client: WireClient, name: str | None) -> None:
    """Print mechanisms and iterations of a user, or of all with None, as kafka-configs.sh does behind the quotas."""
    make = DescribeUserScramCredentialsRequest
    users = [] if name is None else [make.UserName(name=name)]
    answer: DescribeUserScramCredentialsResponse = client.send(make(users=users), _controller(client))
    check_code(answer.error_code, answer.error_message)
    rows = []
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue  # a user without credentials
        if result.error_code:
            cause = BrokerRefusal(result.error_code, result.error_message)
            print(f"Error retrieving SCRAM credential configs for user-principal '{result.user}': {cause}")
            continue
        found = {
            BY_NUMBER[info.mechanism].name if info.mechanism in BY_NUMBER else "UNKNOWN": str(info.iterations)
            for info in result.credential_infos
        }
        if on_terminal():
            rows += [[result.user, mechanism, iterations] for mechanism, iterations in found.items()]
        else:
            infos = ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in found.items())
            print(f"SCRAM credential configs for user-principal '{result.user}' are {infos}")
    if rows:
        print_table([Column("USER"), Column("MECHANISM"), Column("ITERATIONS")], rows)


def _controller(client: WireClient) -> int | None:
    """Return the broker that Java's admin client sends these requests to: Apache Kafka's others refuse them."""
    return client.controller_id if client.controller_id >= 0 else None
