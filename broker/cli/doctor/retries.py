"""The check of `gregor doctor` on the machine of a broker for clients that retry: whose batches are refused again and
again, or sent again although the broker has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gregor.broker.cli.doctor.checks import Finding, Level
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.upkeep import exchange
from gregor.protocol.errors import ErrorCode

MIN_REPEATS = 100
"""In the last 5 to 10 minutes: an election or a lost connection causes a few."""


def examine_retries(config_path: str) -> list[Finding]:
    """Read the counts of the broker with these settings; none if it does not run or is of an older version."""
    try:
        return check_retries(exchange({"data_dir": None, "config_file": config_path}, {"command": "repeats"}))
    except CommandError:
        return []


def check_retries(answers: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Name the clients above the threshold."""
    found = []
    for answer in answers:
        if answer["recent"] < MIN_REPEATS:
            continue
        client_id, error = answer["client_id"], answer["error_name"]
        if error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER.name:
            text = f"client '{client_id}' retries: it sent {answer['recent']} batches again that the broker has"
            remedy = (
                "its requests end before their answers arrive: raise its request.timeout.ms, and compare its network"
                " and the broker's load"
            )
        else:
            text = f"client '{client_id}' retries: {answer['recent']} of its batches were refused with {error}"
            remedy = "the error names the cause; NOT_ENOUGH_REPLICAS: start the brokers that are down"
        found.append(Finding(Level.NOTE, f"{text} in the last 5 to 10 min", remedy))
    return found
