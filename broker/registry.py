"""The served API versions and their handlers, which register themselves where they are defined.

The ApiVersions answer is derived from this table, so nothing can be advertised that has no handler.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
"""Requests between the brokers of a cluster; a single broker does not serve them, and does not load their handlers.

WriteTxnMarkers is not among them: tools send it to abort a transaction that no coordinator will end."""
OF_TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Served where the broker shows what clients push."""
_API_OF_MODULE = re.compile(r"k(\d+)_")
_HANDLERS = "gregor.broker.handlers"
_GUARDS = "gregor.broker.authorization.guards.table"

Handler = Callable[[Any, Any, "Call"], Any]
"""The first argument is a protocol of the needed parts, from gregor.broker.context or the handler's module."""
HandlerT = TypeVar("HandlerT", bound=Handler)
PartT = TypeVar("PartT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
IsShort = Callable[[Any], bool]
"""Whether a response is so short that it is encoded at once, which needs less time than steps do."""


Renewal = Callable[[], bool]
"""Serves a request that was served before. True: its effect has happened, and its response is that of before. False:
nothing has happened, and the handler must serve it."""
MakeRenewal = Callable[[Any, Any, "Call", Any], Renewal | None]
"""(broker, request, call, response) -> the renewal of a request that was served just now, if it may have one."""


NumberedRenewal = Callable[[Sequence[int]], bool]
"""A Renewal of a request with these numbers in place of those of before."""
MakeNumberedRenewal = Callable[[Any, Any, "Call", Any], NumberedRenewal | None]


class Numbers(NamedTuple):
    """The int64 fields in which the requests of a client differ, where all else is the same.

    `parts` finds the parts of a request that have the field, in the order of their bytes; a request with more than
    `max_parts` is not kept. `renewal` is as that of Entry; from then on the request is changed only in these fields.
    """

    parts: Callable[[Any], list[Any]]
    field: str
    max_parts: int
    renewal: MakeNumberedRenewal


def never_short(_response: object) -> bool:
    """Encode each response that has arrays in steps."""
    return False


@dataclass(slots=True, frozen=True)
class Entry:
    """One served API. `handler(broker, request, call)` returns the response, a Deferred or an awaitable of it, or None
    for no answer.

    `pipelined`: later requests of the connection may be dispatched before the response, because everything that depends
    on the order has happened when the handler returns (Produce: the append).

    `changes`: the request changes something, and is completed even if its client leaves; a mere query is cancelled.

    `eager`: the handler is a coroutine that mostly has its response without a wait. It runs up to its first wait before
    it becomes a task, so until then it must use nothing that belongs to a task (asyncio.timeout, TimeLimit). Or it is a
    function that returns the response where it needs no wait, and else such a coroutine.

    `repeats`: clients send the same request again and again. The handler gets the same object then, and must not
    change it. Only for eager handlers. With a `renewal` such a request need not reach its handler: the response is
    kept, encoded.

    `numbers`: clients send the same request again and again with other numbers, and its response stays the same. Only
    for eager handlers that return a Deferred which is complete already.

    `is_short`: whether a response with arrays is encoded at once.
    """

    key: ApiKey
    min_version: int
    max_version: int
    handler: Handler
    pipelined: bool = False
    changes: bool = False
    eager: bool = False
    repeats: bool = False
    is_short: IsShort = never_short
    renewal: MakeRenewal | None = None
    numbers: Numbers | None = None

    decoders: Mapping[int, Callable[[memoryview, int], tuple[Any, int]]] = field(init=False, repr=False)
    """version -> (buffer, position) -> (request, its end); raises MalformedMessage."""
    decode_in_steps: Callable[[memoryview, int, int], Generator[None, None, tuple[Any, int]]] = field(
        init=False, repr=False
    )
    """The same with pauses (gregor.protocol.messages)."""
    header_versions: tuple[tuple[int, int], ...] = field(init=False, repr=False)
    """Versions of the request's and the response's header, by version of the API."""
    carries_records: bool = field(init=False)
    """Whether its responses may contain pieces of files, and are encoded at once."""

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
            "carries_records": key is ApiKey.FETCH,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def response_header_version(self, version: int) -> int:
        return self.header_versions[version][1]

    @property
    def response_class(self) -> type[Any] | None:
        return response_class(self.key)


def entry_of(handlers: Mapping[int, Entry], key: int, version: int) -> Entry:
    """Return the entry for a version of an API. Raises FramingError."""
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
    eager: bool = False,
    repeats: bool = False,
    is_short: IsShort = never_short,
    renewal: MakeRenewal | None = None,
    numbers: Numbers | None = None,
) -> Callable[[HandlerT], HandlerT]:
    """Register a handler for versions `min_version` to `max_version` of an API. A second one for the same key is an
    error.
    """

    def register(handler: HandlerT) -> HandlerT:
        if key in _entries:
            raise ValueError(
                f"{key.name} has two handlers: {_entries[key].handler.__module__} and {handler.__module__}"
            )
        _entries[key] = Entry(
            key, min_version, max_version, handler, pipelined, changes, eager, repeats, is_short, renewal, numbers
        )
        return handler

    return register


def on_part(
    part: Callable[[Any], PartT],
) -> Callable[[Callable[[PartT, RequestT, Call], ResponseT]], Callable[[Any, RequestT, Call], ResponseT]]:
    """Give a handler one part of the broker in place of the whole (broker.part_of). Below `handles`, and not for the
    requests of the hot path: it costs a call."""

    def adapt(handler: Callable[[PartT, RequestT, Call], ResponseT]) -> Callable[[Any, RequestT, Call], ResponseT]:
        @wraps(handler)
        def handle(broker: Any, request: RequestT, call: Call) -> ResponseT:
            return handler(part(broker), request, call)

        return handle

    return adapt


def load_handlers(*, in_cluster: bool = True, telemetry: bool = True, guarded: bool = False) -> dict[int, Entry]:
    """Import the modules of broker/handlers; return the table by API key, without `in_cluster` less AMONG_BROKERS, and
    without `telemetry` less OF_TELEMETRY.

    `guarded`: the broker has an authorizer, and each handler is called by the guard of its API.
    """
    left_out = (frozenset() if in_cluster else AMONG_BROKERS) | (frozenset() if telemetry else OF_TELEMETRY)
    handlers = importlib.import_module(_HANDLERS)
    for module in pkgutil.iter_modules(handlers.__path__):
        api = _API_OF_MODULE.match(module.name)
        if api is None or int(api[1]) not in left_out:
            importlib.import_module(f"{_HANDLERS}.{module.name}")
    served = {key: entry for key, entry in _entries.items() if key not in left_out}
    if not guarded:
        return served
    guards = importlib.import_module(_GUARDS)  # a broker without authorizer has none in its memory
    return {key: guards.guarded(entry) for key, entry in served.items()}
