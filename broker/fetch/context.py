"""The parts of the broker that the Fetch handler needs: the data path, and the sessions of consumers and followers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gregor.broker.context import DataContext

if TYPE_CHECKING:
    from gregor.broker.fetch.follower_sessions import FollowerSessions
    from gregor.broker.fetch.sessions import FetchSessions
    from gregor.broker.jobs.turns import TurnQueue


class FetchPathContext(DataContext, Protocol):
    """Records, and the sessions in which clients fetch them."""

    @property
    def fetch_sessions(self) -> FetchSessions: ...
    @property
    def follower_sessions(self) -> FollowerSessions: ...
    @property
    def delayed_reads(self) -> TurnQueue:
        """The reads of consumers' fetches that have waited for records."""

    @property
    def sends_to_racks(self) -> bool: ...
