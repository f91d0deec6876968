"""A request and its connection, as far as they concern quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gregor.protocol.principal import Principal

Handler = Callable[[Any, Any, Any], Any]
"""As in broker.registry, with any request in the place of broker.context.Call."""


class MeteredConnection(Protocol):
    @property
    def principal(self) -> Principal: ...
    def throttle(self, duration_ms: int) -> None: ...


class MeteredCall(Protocol):
    """broker.context.Call"""

    @property
    def connection(self) -> MeteredConnection: ...
    @property
    def api_key(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
