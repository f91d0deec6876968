"""Which API versions the broker serves, and by what: handlers register themselves where they are written.

The ApiVersions answer is derived from this table, so nothing can be advertised that has no handler.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.framing import FramingError
from gregor.protocol.messages import request_class, request_header_version, response_class, response_header_version

if TYPE_CHECKING:
    from gregor.broker.context import Call

AMONG_BROKERS = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""What only brokers of a cluster say to each other; one that is alone serves it to nobody, and does not load it."""
_API_OF_MODULE = re.compile(r"k(\d+)_")
_HANDLERS = "gregor.broker.handlers"

Handler = Callable[[Any, Any, "Call"], Any]
"""Its first argument is what gregor.broker.context, or the handler itself, says that it needs of the broker."""
HandlerT = TypeVar("HandlerT", bound=Handler)


@dataclass(slots=True, frozen=True)
class Entry:
    """One served API. `handler(broker, request, call)` returns the response, a Deferred or an awaitable of it, or None
    for no answer.

    `pipelined`: requests behind one that is still unanswered may be taken up, because all that its order decides has
    happened when the handler returns (Produce: the append).

    `changes`: what was begun is done to its end, also when its client leaves; a mere question is dropped then.
    """

    key: ApiKey
    min_version: int
    max_version: int
    handler: Handler
    pipelined: bool = False
    changes: bool = False

    decoders: Mapping[int, Callable[[memoryview, int], tuple[Any, int]]] = field(init=False, repr=False)
    """version -> (buffer, position) -> (request, its end); raises MalformedMessage."""
    decode_in_steps: Callable[[memoryview, int, int], Generator[None, None, tuple[Any, int]]] = field(
        init=False, repr=False
    )
    """The same with pauses (gregor.protocol.messages)."""
    header_versions: tuple[tuple[int, int], ...] = field(init=False, repr=False)
    """Of the request's and the response's header, by version."""
    carries_records: bool = field(init=False)
    """Its responses may hold pieces of files, and are mostly records."""

    def __post_init__(self) -> None:
        key = self.key
        request: Any = request_class(key)
        derived = {
            "decoders": request.decoders,
            "decode_in_steps": request.decode_in_steps,
            "header_versions": tuple(
                (request_header_version(key, version), response_header_version(key, version))
                for version in range(self.max_version + 1)
            ),
            "carries_records": key in (ApiKey.PRODUCE, ApiKey.FETCH),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def response_header_version(self, version: int) -> int:
        return self.header_versions[version][1]

    @property
    def response_class(self) -> type[Any] | None:
        return response_class(self.key)


def entry_of(handlers: Mapping[int, Entry], key: int, version: int) -> Entry:
    """What serves that version. Raises FramingError."""
    entry = handlers.get(key)
    if entry is None:
        raise FramingError(f"API key {key} (version {version}) is not served")
    if not entry.min_version <= version <= entry.max_version:
        raise FramingError(
            f"{entry.key.name} version {version} is not served, only {entry.min_version} to {entry.max_version}"
        )
    return entry


_entries: dict[int, Entry] = {}


def handles(
    key: ApiKey,
    min_version: int,
    max_version: int,
    *,
    pipelined: bool = False,
    changes: bool = False,
) -> Callable[[HandlerT], HandlerT]:
    """Register a handler for versions `min_version` to `max_version` of an API. A second one for the same key is an
    error.
    """

    def register(handler: HandlerT) -> HandlerT:
        if key in _entries:
            raise ValueError(
                f"{key.name} has two handlers: {_entries[key].handler.__module__} and {handler.__module__}"
            )
        _entries[key] = Entry(key, min_version, max_version, handler, pipelined, changes)
        return handler

    return register


def load_handlers(*, in_cluster: bool = True) -> dict[int, Entry]:
    """Import the modules of broker/handlers; return the table by API key, without `in_cluster` less AMONG_BROKERS."""
    handlers = importlib.import_module(_HANDLERS)
    for module in pkgutil.iter_modules(handlers.__path__):
        api = _API_OF_MODULE.match(module.name)
        if in_cluster or api is None or int(api[1]) not in AMONG_BROKERS:
            importlib.import_module(f"{_HANDLERS}.{module.name}")
    return {key: entry for key, entry in _entries.items() if in_cluster or key not in AMONG_BROKERS}
