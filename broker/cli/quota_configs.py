"""The quotas of users, client ids and addresses, as kafka-configs.sh shows and alters them."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.tables import Column, on_terminal, print_table
from gregor.broker.cli.wire import WireClient, check_code
from gregor.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

EXACT, DEFAULT, ANY = 0, 1, 2
ORDER = "entity_order"
"""Key of click's context: --entity-name and --entity-default in the order in which they were given."""

_KINDS = {"users": "user", "clients": "client-id", "ips": "ip"}
"""The entity types of the protocol, by those of --entity-type."""
_TITLES = {"user": "user-principal", "client-id": "client-id", "ip": "IP"}


class Part(NamedTuple):
    """One part of an entity; a name of "" stands for the default, None for any name."""

    word: str
    name: str | None

    @property
    def kind(self) -> str:
        return _KINDS[self.word]


def remember_order(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Note the names and defaults of an option. Click calls this for the options in the order in which they were
    given."""
    names = list(value) if isinstance(value, tuple) else [""] * int(value or 0)
    context.meta.setdefault(ORDER, []).extend(names)
    return value


def quota_parts(given: dict[str, Any], order: list[str]) -> list[Part]:
    """Return the parts of the entity whose quotas are meant; empty if the flags name another kind of entity."""
    parts = [Part(word, given[word.removesuffix("s")]) for word in _KINDS if given[word.removesuffix("s")] is not None]
    parts += [Part(word, "") for word in _KINDS if given[f"{word.removesuffix('s')}_defaults"]]
    words: tuple[str, ...] = given["entity_type"]
    if not parts and not any(word in _KINDS for word in words):
        return []
    if any(word not in _KINDS for word in words):
        raise click.UsageError("Only users and clients can be combined; give one --entity-type.")
    if len(order) > len(words):
        raise click.UsageError("Give --entity-type before each --entity-name or --entity-default.")
    names: list[str | None] = [*order, *[None] * (len(words) - len(order))]
    parts += [Part(word, name) for word, name in zip(words, names, strict=True)]
    kinds = [part.kind for part in parts]
    if len(set(kinds)) < len(kinds):
        raise click.UsageError("Give each of users, clients and ips once.")
    if "ip" in kinds and len(kinds) > 1:
        raise click.UsageError("An address cannot be combined with a user or a client id.")
    return sorted(parts, key=lambda part: list(_KINDS).index(part.word))


def alteration(parts: list[Part], changes: dict[str, str | None]) -> AlterClientQuotasRequest:
    """Return the request that sets and removes (None) quotas."""
    if any(part.name is None for part in parts):
        raise click.UsageError("--alter needs --entity-name or --entity-default for each --entity-type.")
    make = AlterClientQuotasRequest
    entry = make.EntryData(
        entity=[make.EntityData(entity_type=part.kind, entity_name=part.name or None) for part in parts],
        ops=[make.OpData(key=key, value=_number(key, text), remove=text is None) for key, text in changes.items()],
    )
    return make(entries=[entry])


def alter(client: WireClient, parts: list[Part], request: AlterClientQuotasRequest) -> None:
    """Set and remove quotas: all of them, or none if the broker refuses one."""
    answer: AlterClientQuotasResponse = client.send(request)
    for result in answer.entries:
        check_code(result.error_code, result.error_message)
    first = parts[0]
    if first.name:
        print(f"Completed updating config for {first.word[:-1]} {first.name}.")
    else:
        print(f"Completed updating default config for {first.word} in the cluster.")


def _number(key: str, text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        if "_" in text or not text.isascii():  # numbers of Python, not of Java
            raise ValueError
        return float(text)
    except ValueError:
        raise CommandError(f"{key}={text}: a quota is a number, e.g. 1000000.") from None


def describe(client: WireClient, parts: list[Part]) -> None:
    """Print the quotas of the entities that match and have no other part, as kafka-configs.sh does."""
    found = limits(client, parts)
    if on_terminal():
        columns = [Column("ENTITY"), Column("QUOTA"), Column("LIMIT")]
        print_table(
            columns, [[title, key, f"{limit:.15g}"] for title, of_one in found for key, limit in of_one.items()]
        )
        return
    for title, of_one in found:
        print(f"Quota configs for {title} are {', '.join(f'{key}={limit}' for key, limit in of_one.items())}")


def limits(client: WireClient, parts: list[Part]) -> list[tuple[str, dict[str, float]]]:
    """Return the entities that match and have no other part, with their quotas by key."""
    filters = [
        DescribeClientQuotasRequest.ComponentData(
            entity_type=part.kind,
            match_type=ANY if part.name is None else EXACT if part.name else DEFAULT,
            match=part.name or None,
        )
        for part in parts
    ]
    request = DescribeClientQuotasRequest(components=filters, strict=True)
    answer: DescribeClientQuotasResponse = client.send(request)
    check_code(answer.error_code, answer.error_message)
    return sorted(
        (
            ", ".join(_text(part.entity_type, part.entity_name) for part in entry.entity),
            {value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)},
        )
        for entry in answer.entries or ()
    )


def _text(kind: str, name: str | None) -> str:
    return f"the default {_TITLES[kind]}" if name is None else f"{_TITLES[kind]} '{name}'"
