"""What the Fetch handler uses beside the data path: the fetch sessions of consumers and of followers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gregor.broker.context import DataContext

if TYPE_CHECKING:
    from gregor.broker.fetch.follower_sessions import FollowerSessions
    from gregor.broker.fetch.sessions import FetchSessions


class FetchPathContext(DataContext, Protocol):
    """Records, and who fetches them."""

    @property
    def fetch_sessions(self) -> FetchSessions: ...
    @property
    def follower_sessions(self) -> FollowerSessions: ...
    @property
    def sends_to_racks(self) -> bool: ...
