"""A model of ZooKeeper and of kazoo's connection to it: gregor's own client code runs on top, in virtual time.

The ensemble is one tree with sessions. It fails as a real one does: answers and watches come
late, a connection breaks before or after the write it carried was done, a session ends while its owner cannot know.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat

from gregor.replication.store.metadata_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
    StoreError,
    Watch,
    WatchEvent,
    parent_of,
)
from gregor.replication.store.node_tree import NodeTree
from gregor.replication.store.zookeeper import Settings, ZooKeeperStore
from gregor.replication.store.zookeeper_connection import Found, MultiRead
from tests.simulation.loop import Process, VirtualLoop

_ERRORS: dict[type[StoreError], type[Exception]] = {
    NoNode: kazoo_errors.NoNodeError,
    NodeExists: kazoo_errors.NodeExistsError,
    BadVersion: kazoo_errors.BadVersionError,
    NotEmpty: kazoo_errors.NotEmptyError,
    NoChildrenForEphemerals: kazoo_errors.NoChildrenForEphemeralsError,
}
_KINDS = {
    EventKind.CREATED: EventType.CREATED,
    EventKind.DELETED: EventType.DELETED,
    EventKind.CHANGED: EventType.CHANGED,
    EventKind.CHILDREN: EventType.CHILD,
}
LONGEST_DELAY_S = 0.02
PING_S = 0.5
RECONNECT_S = 0.2

WriteObserver = Callable[[list[Operation], int], None]


class Session:
    def __init__(self, session_id: int, timeout_s: float, now_s: float) -> None:
        self.id = session_id
        self.timeout_s = timeout_s
        self.heard_s = now_s
        self.over = False


class Ensemble:
    """The servers. `reachable(process)` returns whether a broker's link to them is open."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, reachable: Callable[[Process], bool]) -> None:
        self.tree = NodeTree()
        self.on_write: list[WriteObserver] = []
        """Called after each write that was done, with its operations and the session."""
        self.sessions: dict[int, Session] = {}
        self.written: dict[str, int] = {}
        """The write by which each node got its data."""
        self.loop = loop
        self.rng = rng
        self.reachable = reachable
        self.slowness = 1.0
        self._last_id = 0x1000

    def open_session(self, timeout_s: float) -> Session:
        self._last_id += 1
        session = self.sessions[self._last_id] = Session(self._last_id, timeout_s, self.loop.time())
        self.loop.call_later(timeout_s, self._check, session, context=self.loop.nobodys)
        return session

    def _check(self, session: Session) -> None:
        if not session.over:
            left_s = session.heard_s + session.timeout_s - self.loop.time()
            if left_s <= 0:
                self.end(session)
            else:
                self.loop.call_later(left_s, self._check, session)

    def end(self, session: Session) -> None:
        """End a session that expired or was closed: its ephemeral nodes are deleted."""
        session.over = True
        del self.sessions[session.id]
        owned = self.tree.owned_by(session.id)
        if owned:
            self.write([Delete(path) for path in owned], 0)

    def write(self, operations: list[Operation], session_id: int) -> list[Any]:
        change = self.tree.apply(operations, session_id)
        for operation in operations:
            if isinstance(operation, (Create, Set)):
                self.written[operation.path] = change.zxid
        for watch, event in change.watches:
            watch(event)
        for observer in self.on_write:
            observer(operations, session_id)
        return change.results


class _Result:
    """An IAsyncResult of kazoo."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Exception | None = None
        self._done = False
        self._callbacks: list[Callable[[_Result], None]] = []

    def rawlink(self, callback: Callable[[_Result], None]) -> None:
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def settle(self, value: Any = None, exception: Exception | None = None) -> None:
        if not self._done:
            self._done = True
            self.value, self.exception = value, exception
            for callback in self._callbacks:
                callback(self)


class _Transaction:
    def __init__(self, client: Client) -> None:
        self._client = client
        self.operations: list[Any] = []

    def check(self, path: str, version: int) -> None:
        self.operations.append(Check(path, version))

    def set_data(self, path: str, data: bytes, version: int = -1) -> None:
        self.operations.append(Set(path, data, version))

    def delete(self, path: str, version: int = -1) -> None:
        self.operations.append(Delete(path, version))

    def commit_async(self) -> _Result:
        operations: list[Operation] = [
            Create(one.path, one.data, bool(one.flags & 1), bool(one.flags & 2))
            if isinstance(one, CreateRequest)
            else one
            for one in self.operations
        ]
        return self._client.ask(lambda: self._client.written(operations))


class _Handler:
    """The used part of gregor's handler for kazoo."""

    trouble = ""

    def async_result(self) -> _Result:
        return _Result()

    def shut_connection(self) -> None:
        """A request that has no answer fails with the connection in any case."""


class Client:
    """The used part of kazoo's KazooClient: one session after the other, each over one connection at a time.

    Messages arrive in order, in both directions; a connection that breaks loses the messages that were under way.
    """

    chroot = ""
    hosts = (("zk", 2181),)
    handler = _Handler()
    client_state = "CONNECTED"
    """As long as no authentication fails, which is not simulated."""

    def __init__(self, ensemble: Ensemble, process: Process, timeout_s: float) -> None:
        self.client_id: tuple[int, bytes] | None = None
        self._ensemble = ensemble
        self._loop = ensemble.loop
        self._process = process
        self._timeout_s = timeout_s
        self._listeners: list[Callable[[str], None]] = []
        self.session: Session | None = None
        self._connection = 0
        """Its number while there is one, else 0; answers to another one are dropped."""
        self._connections = 0
        self._heard_s = 0.0
        self._lost_something = False
        """A connection that has is over, though the session may live on."""
        self._there_s = self._back_s = 0.0
        """When the last thing sent arrives, here and there."""
        self._pending: dict[_Result, None] = {}
        self._watches: dict[tuple[str, bool, Any], Callable[[WatchedEvent], None]] = {}
        self._closed = False

    # -- calls of ZooKeeperStore ----------------------------------------------------------------------------------

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def start_async(self) -> None:
        self._later(self._delay(), self._live)

    def end(self) -> bool:
        """stop() and close() of a client whose process ends in order. Return whether the session is over."""
        self._closed = True
        session = self.session
        if session is None:
            return False
        if self._connection and not session.over and self._ensemble.reachable(self._process):
            self._ensemble.end(session)
        return session.over

    @property
    def connected(self) -> bool:
        return bool(self._connection)

    def stop(self) -> None:
        self.end()

    def close(self) -> None:
        """Nothing is left to be freed."""

    def _call(self, request: MultiRead, result: _Result) -> None:
        self.ask(lambda: [self._found(path, None) for path in request.paths]).rawlink(
            lambda answer: result.settle(answer.value, answer.exception)
        )

    def get_async(self, path: str, watch: Any) -> _Result:
        return self.ask(lambda: self._got(path, watch))

    def exists_async(self, path: str, watch: Any) -> _Result:
        return self.ask(
            lambda: self._znode_stat(path, self._ensemble.tree.exists(path, self._armed(path, False, watch)))
        )

    def get_children_async(self, path: str, watch: Any) -> _Result:
        return self.ask(lambda: sorted(self._ensemble.tree.children(path, self._armed(path, True, watch))))

    def transaction(self) -> _Transaction:
        return _Transaction(self)

    # -- the connection --------------------------------------------------------------------------------------------

    def _delay(self) -> float:
        return self._ensemble.rng.random() * LONGEST_DELAY_S * self._ensemble.slowness

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._loop.call_later(delay_s, call, context=self._process.context)

    def _live(self) -> None:
        """Connect, ping, notice a silent server, again and again."""
        if self._closed:
            return
        now_s, reachable = self._loop.time(), self._ensemble.reachable(self._process)
        session = self.session
        if self._connection and reachable:
            if session is None or session.over:
                self._lose(KazooState.LOST)
            elif self._lost_something:
                self._lose(KazooState.SUSPENDED)
            else:
                session.heard_s = self._heard_s = now_s
        elif self._connection and now_s - self._heard_s > self._timeout_s * 2 / 3:
            self._lose(KazooState.SUSPENDED)
        elif not self._connection and reachable:
            self._connect()
        self._later(PING_S if self._connection else RECONNECT_S, self._live)

    def _connect(self) -> None:
        if self.session is not None and self.session.over:
            self._lose(KazooState.LOST)
        if self.session is None:
            self.session = self._ensemble.open_session(self._timeout_s)
        self._lost_something = False
        self._connections += 1
        self._connection = self._connections
        self.session.heard_s = self._heard_s = self._there_s = self._back_s = self._loop.time()
        self.client_id = self.session.id, b""
        self._tell(KazooState.CONNECTED)

    def _lose(self, state: str) -> None:
        """Handle the end of the connection, or of the session with it."""
        self._connection = 0
        if state == KazooState.LOST:
            self.session = self.client_id = None
        self._tell(state)
        pending, self._pending = self._pending, {}
        for result in pending:
            result.settle(exception=kazoo_errors.ConnectionLoss())
        watches, self._watches = self._watches, {}
        gone = WatchedEvent(EventType.NONE, KeeperState.CONNECTING, None)
        for called in watches.values():
            called(gone)

    def break_connection(self) -> None:
        """Break the connection, but not the session: requests under way may have been executed."""
        if self._connection:
            self._later(0, lambda: self._lose(KazooState.SUSPENDED) if self._connection else None)

    def _tell(self, state: str) -> None:
        for listener in self._listeners:
            listener(state)

    # -- one request -----------------------------------------------------------------------------------------------

    def ask(self, do: Callable[[], Any]) -> _Result:
        result = _Result()
        connection = self._connection
        if not connection:
            result.settle(exception=kazoo_errors.ConnectionLoss())
            return result
        self._pending[result] = None
        self._there_s = max(self._there_s, self._loop.time() + self._delay())
        self._loop.call_at(self._there_s, self._arrived, connection, do, result, context=self._loop.nobodys)
        return result

    def _arrived(self, connection: int, do: Callable[[], Any], result: _Result) -> None:
        """At the server. A broken connection's last requests still arrive, and so they do from a dead process."""
        session = self.session
        if not self._ensemble.reachable(self._process):
            self._lost_something = True
            return
        if connection != self._connections or session is None:
            return
        if session.over:
            return  # the client finds out with its next ping
        session.heard_s = self._loop.time()
        value: Any = None
        error: Exception | None = None
        try:
            value = do()
        except StoreError as refusal:
            error = _ERRORS[type(refusal)]()
        self._send_back(connection, lambda: self._answered(result, value, error))

    def _answered(self, result: _Result, value: Any, error: Exception | None) -> None:
        if result in self._pending:
            del self._pending[result]
            result.settle(value, error)

    def _send_back(self, connection: int, call: Callable[[], None]) -> None:
        self._back_s = max(self._back_s, self._loop.time() + self._delay())

        def arrive() -> None:
            if connection == self._connection and self._ensemble.reachable(self._process):
                self._heard_s = self._loop.time()
                call()
            else:
                self._lost_something = True

        self._loop.call_at(self._back_s, arrive, context=self._process.context)

    def _found(self, path: str, watch: Any) -> Found:
        found = self._ensemble.tree.get(path, self._armed(path, False, watch))
        return None if found is None else (found[0], self._znode_stat(path, found[1]))

    def _got(self, path: str, watch: Any) -> Found:
        found = self._found(path, watch)
        if found is None:
            raise NoNode(path)
        return found

    def _armed(self, path: str, children: bool, called: Callable[[WatchedEvent], None] | None) -> Watch | None:
        """In the server's tree; the event travels as an answer does, and so before the answers that show the change."""
        if called is None:
            return None
        if not children and self._ensemble.tree.exists(path, None) is None and called is None:
            return None
        connection = self._connections
        key = path, children, object()
        self._watches[key] = called

        def happened(event: WatchEvent) -> None:
            def arrive() -> None:
                if self._watches.pop(key, None) is not None:
                    called(WatchedEvent(_KINDS[event.kind], KeeperState.CONNECTED, event.path))

            self._send_back(connection, arrive)

        return happened

    def written(self, operations: list[Operation]) -> list[Any]:
        assert self.session is not None
        try:
            results = self._ensemble.write(operations, self.session.id)
        except StoreError as error:
            failed = next(index for index, one in enumerate(operations) if _is_about(one, error))
            return [
                _ERRORS[type(error)]() if index == failed else kazoo_errors.RolledBackError()
                for index in range(len(operations))
            ]
        return [
            self._znode_stat(operation.path, one) if isinstance(one, Stat) else True if one is None else one
            for operation, one in zip(operations, results, strict=True)
        ]

    def _znode_stat(self, path: str, stat: Stat | None) -> ZnodeStat | None:
        if stat is None:
            return None
        mzxid = self._ensemble.written.get(path, stat.czxid)
        return ZnodeStat(stat.czxid, mzxid, 0, 0, stat.version, 0, 0, stat.ephemeral_owner, 0, 0, stat.czxid)


def _is_about(operation: Operation, error: StoreError) -> bool:
    if operation.path == error.path:
        return True
    return isinstance(operation, Create) and (
        parent_of(operation.path) == error.path or (operation.sequential and error.path.startswith(operation.path))
    )


class SimulatedStore(ZooKeeperStore):
    """gregor's client on a modelled connection."""

    def __init__(self, ensemble: Ensemble, process: Process, session_timeout_ms: int) -> None:
        super().__init__(Settings("ensemble", session_timeout_ms))
        self._new_client = lambda: Client(ensemble, process, session_timeout_ms / 1000)
        self.client = self._new_client()

    def _client(self) -> Client:
        return self.client if self._kazoo is None else self._new_client()

    async def close(self) -> None:
        self._closed = True
        self._connected.set()
        self.session_closed = self.client.end()
