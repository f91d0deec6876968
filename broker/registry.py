"""Which API versions the broker serves, and by what: handlers register themselves where they are written.

The ApiVersions answer is derived from this table, so nothing can be advertised that has no handler.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from gregor.protocol.api_keys import ApiKey
from gregor.protocol.messages import request_class, request_header_version, response_class, response_header_version

if TYPE_CHECKING:
    from gregor.broker.context import Call


class Later(ABC):
    """An answer that is owed. Its handler's caller says once, right away, where it shall go.

    Like a future, without the turn of the loop that a future's callbacks cost: what `answered` is called from is up to
    the handler.
    """

    __slots__ = ()

    @abstractmethod
    def then(self, answered: Callable[[Any], None]) -> None: ...

    @abstractmethod
    def cancel(self) -> None:
        """The client left; nothing will be answered. Idempotent."""


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
    """One served API. `handler(broker, request, call)` returns the response, a Later or an awaitable of it, or None for
    no answer.

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

    def decode(self, buffer: memoryview, version: int, position: int) -> Any:
        return request_class(self.key).decode(buffer, version, position)[0]  # type: ignore[union-attr]

    def decode_in_steps(self, buffer: memoryview, version: int, position: int) -> Generator[None, None, Any]:
        """The same with pauses (gregor.protocol.messages); returns the request and its end."""
        return request_class(self.key).decode_in_steps(buffer, version, position)  # type: ignore[union-attr]

    def request_header_version(self, version: int) -> int:
        return request_header_version(self.key, version)

    def response_header_version(self, version: int) -> int:
        return response_header_version(self.key, version)

    @property
    def response_class(self) -> type[Any] | None:
        return response_class(self.key)


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
