"""gregor.broker.registry: handlers register themselves, each API once, in its own module."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gregor.broker.registry import handles, load_handlers, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import (
    APIS,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)


def test_every_handler_stands_in_the_module_of_its_api() -> None:
    for key, entry in load_handlers().items():
        assert entry.key == key
        assert entry.handler.__module__ == f"gregor.broker.handlers.k{key:02}_{APIS[key]}"
        module = importlib.import_module(entry.handler.__module__)
        assert module.__doc__ is not None
        assert f"(key {key}), versions {entry.min_version} to {entry.max_version}" in module.__doc__.partition("\n")[0]


def test_only_produce_overlaps() -> None:
    assert [key for key, entry in load_handlers().items() if entry.pipelined] == [ApiKey.PRODUCE]


def test_a_second_handler_of_an_api_is_an_error() -> None:
    load_handlers()
    with pytest.raises(ValueError, match="two handlers"):
        handles(ApiKey.PRODUCE, 0, 1)(lambda broker, request, call: None)
    assert load_handlers()[ApiKey.PRODUCE].handler.__module__ == "gregor.broker.handlers.k00_produce"


def test_handler_of_one_part_gets_it_in_place_of_the_broker() -> None:
    @on_part(lambda broker: broker.tokens)
    def handler(tokens: list[str], request: str, call: Any) -> str:
        return f"{tokens[0]}: {request} of {call}"

    assert handler(SimpleNamespace(tokens=["first"]), "renew", cast("Any", "a client")) == "first: renew of a client"
    assert handler.__name__ == "handler", "the registry and the logs name the handler"


def test_entries_know_their_messages_and_headers() -> None:
    for key, entry in load_handlers().items():
        assert entry.response_class is response_class(key)
        for version in range(entry.min_version, entry.max_version + 1):
            assert entry.header_versions[version][0] == request_header_version(key, version)
            assert entry.response_header_version(version) == response_header_version(key, version)
        request = request_class(key)
        assert request is not None
        decoded, _ = entry.decoders[entry.max_version](memoryview(request().encode(entry.max_version)), 0)
        assert decoded == request.decode(request().encode(entry.max_version), entry.max_version)[0]
