"""The metadata store of a cluster: ZooKeeper, through kazoo. The only module that knows kazoo.

kazoo communicates on a thread of its own. Its responses and watch events are passed to the event loop in the order of
their arrival, which keeps ZooKeeper's guarantee: a watch is called before the response that shows the change.

A connection may be lost while the session continues, at this or another server of the ensemble. Reads are then repeated
once there is a connection. A write may have been done or not: its effect is searched for, and it is repeated only where
there is none. Watches do not survive a lost connection in kazoo: each is called, as if its node had changed, and set
again when the node is read again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial, reduce
from operator import or_
from typing import Any, NamedTuple

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.states import EventType, KazooState, KeeperState, ZnodeStat
from kazoo.retry import KazooRetry

from gregor.config.ensemble import parse_connect
from gregor.config.security.tls import client_context
from gregor.config.security.zookeeper import ZooKeeperSecurity
from gregor.replication.store.metadata_store import (
    ANY_VERSION,
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
    Result,
    SessionExpired,
    Set,
    Stat,
    StoreError,
    StoreFailed,
    TooLarge,
    Watch,
    WatchEvent,
    ancestors_of,
)
from gregor.replication.store.zookeeper_connection import LoopHandler, end_client, multi_read, node_acl

DEFAULT_SESSION_TIMEOUT_MS = 18_000
DEFAULT_IN_FLIGHT = 10
MAX_READS_AT_ONCE = 100
"""Thousands of reads begun at once would hold up the loop."""
READ_BY_ONE_REQUEST = 200
MANY = 20
"""At least this many reads are done by few requests, where the server can: 5000 single reads cost two seconds of a
processor, most of them in kazoo."""
PROBED_FOR_S = 5.0
LARGE_BYTES, LARGE_WRITES_TRIED = 900_000, 3
"""A larger write may exceed the limit of the servers (jute.maxbuffer, 1 MiB by default): it is tried only this
often."""
RECONNECT_FIRST_S, RECONNECT_MOST_S = 0.05, 1.0

_LOGGED_AGAIN_S = 30.0

_log = logging.getLogger(__name__)
# It logs each attempt to connect, several a second; here only the outcome is logged.
_kazoo_log = logging.getLogger("kazoo.client")
_kazoo_log.setLevel(logging.ERROR)

_ERRORS: dict[type[Exception], type[StoreError]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo_errors.SessionExpiredError: SessionExpired,
    kazoo_errors.AuthFailedError: StoreFailed,
    kazoo_errors.NoAuthError: StoreFailed,
}
_KINDS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.CHILD: EventKind.CHILDREN,
}


class Lost(Exception):
    """The connection was lost before the response."""


class Settings(NamedTuple):
    """The settings `zookeeper.*`. `connect` is host:port,host:port/chroot."""

    connect: str
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    connection_timeout_ms: int | None = None
    max_in_flight: int = DEFAULT_IN_FLIGHT
    security: ZooKeeperSecurity = ZooKeeperSecurity()


class ZooKeeperStore:
    """A MetadataStore (see there) in a ZooKeeper ensemble, below the chroot of the connect string, which is created."""

    def __init__(self, settings: Settings) -> None:
        self.session_id = 0
        self.on_session_expired: list[Callable[[], None]] = []
        self.on_new_session: list[Callable[[int, bytes, list[tuple[str, int]]], None]] = []
        """Called with id, password and servers (host and port) of each session, at its beginning."""
        self._settings = settings
        self._tls_context = _tls_context(settings.security)
        self._room = asyncio.Semaphore(settings.max_in_flight)
        self._connected = asyncio.Event()
        self._probing = asyncio.Lock()
        self._can_read_many: bool | None = None  # None: not known yet
        self._expired = False
        self._closed = False
        self.session_closed = False
        """Whether `close` has ended the session: a server has confirmed that."""
        self._lost_while_closing = False
        self._lost_at: float | None = None
        self._kazoo: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- session -----------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set() and not self._closed

    async def start(self) -> None:
        """Connect and begin a session. Raises StoreFailed if no server answers in time, ConfigError if the settings
        name none."""
        self._loop = asyncio.get_running_loop()
        path = parse_connect(self._settings.connect).chroot
        self._kazoo = self._client()
        self._kazoo.add_listener(partial(self._post, self._state_changed))
        await self._connect(self._kazoo, self._connected)
        if path:
            if await self.exists(path) is None:
                with suppress(NodeExists):
                    await self.create(path, make_parents=True)
            # From here on all paths are below the chroot.
            self._kazoo.chroot = path

    @property
    def silent_s(self) -> float:
        """Return for how long there has been no connection."""
        return 0.0 if self._lost_at is None else time.monotonic() - self._lost_at

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes, if a server answers; see `session_closed`."""
        self._closed = True
        self._connected.set()  # calls that wait for a connection fail
        if self._kazoo is not None:
            ended = await asyncio.to_thread(end_client, self._kazoo)
            # All calls that kazoo's thread has posted until its end have been handled by now.
            self.session_closed = ended and not self._lost_while_closing

    def _client(self) -> Any:
        retry = KazooRetry(max_tries=-1, delay=RECONNECT_FIRST_S, backoff=2, max_delay=RECONNECT_MOST_S)
        timeout_s = self._settings.session_timeout_ms / 1000
        handler = LoopHandler(partial(self._post, self._conversation_failed), self._tls_context)
        return KazooClient(
            parse_connect(self._settings.connect).addresses,
            timeout=timeout_s,
            handler=handler,
            connection_retry=retry,
            logger=_kazoo_log,
            sasl_options=_sasl_options(self._settings.security),
        )

    async def _connect(self, client: Any, connected: asyncio.Event) -> None:
        timeout_ms = self._settings.connection_timeout_ms or self._settings.session_timeout_ms
        client.start_async()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await connected.wait()
        except TimeoutError:
            await asyncio.to_thread(end_client, client)
            cause = f" ({client.handler.trouble})" if client.handler.trouble else ""
            raise StoreFailed(self._settings.connect, f"no ZooKeeper answered within {timeout_ms} ms{cause}") from None

    def _post(self, call: Callable[..., None], *arguments: Any) -> None:
        """Pass a call from kazoo's thread to the loop, unless that has ended."""
        assert self._loop is not None
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            client_id = self._kazoo.client_id
            if client_id is None:  # lost again already
                return
            is_new = client_id[0] != self.session_id
            self.session_id = client_id[0]
            expired, self._expired = self._expired, False
            self._connected.set()
            self._log_connected(expired)
            if is_new:
                for begun in self.on_new_session:
                    begun(client_id[0], client_id[1], self._kazoo.hosts)
            if expired:
                for callback in self.on_session_expired:
                    callback()
        elif self._closed:
            # A session that is closed in order ends without the loss of its connection.
            self._lost_while_closing |= state == KazooState.SUSPENDED
        else:
            self._connected.clear()
            if state == KazooState.LOST:
                self._expired = True
                if self._kazoo.client_state == KeeperState.AUTH_FAILED:
                    self._refused()
            if self._lost_at is None:
                self._lost_at = time.monotonic()
                _log.warning("The connection to ZooKeeper is lost; the broker connects again")
                self._log_lost_later(self._lost_at)

    def _conversation_failed(self, handler: LoopHandler) -> None:
        """Start kazoo's thread again: without it there would be no connection any more, and no error either."""
        assert self._loop is not None
        if self._kazoo.handler is handler:
            self._loop.call_later(RECONNECT_MOST_S, self._begin_anew)

    def _refused(self) -> None:
        """Connect again after a pause, which kazoo does not do: the user may be added to ZooKeeper meanwhile."""
        assert self._loop is not None
        _log.error(
            "ZooKeeper refuses the user %s of gregor.zookeeper.jaas.config; check its password, and the section Server"
            " of ZooKeeper's JAAS file",
            self._settings.security.user,
        )
        self._loop.call_later(RECONNECT_MOST_S, self._begin_anew)

    def _begin_anew(self) -> None:
        if not self._closed:
            self._kazoo.start_async()

    def _log_connected(self, expired: bool) -> None:
        lost_at, self._lost_at = self._lost_at, None
        if expired:
            _log.warning(
                "A new ZooKeeper session, 0x%x; the last one expired after zookeeper.session.timeout.ms=%d",
                self.session_id,
                self._settings.session_timeout_ms,
            )
        elif lost_at is not None:
            seconds = time.monotonic() - lost_at
            _log.info("Connected to ZooKeeper again, after %.1f s; session 0x%x continues", seconds, self.session_id)
        else:
            _log.info("Connected to ZooKeeper, session 0x%x", self.session_id)

    def _log_lost_later(self, lost_at: float) -> None:
        assert self._loop is not None
        self._loop.call_later(_LOGGED_AGAIN_S, self._log_still_lost, lost_at)

    def _log_still_lost(self, lost_at: float) -> None:
        """Log repeatedly while there is no connection."""
        if self._lost_at == lost_at and not self._closed:
            seconds = time.monotonic() - lost_at
            servers = self._settings.connect.partition("/")[0]
            _log.warning(
                "No ZooKeeper has answered for %.0f s; check that one runs at zookeeper.connect=%s", seconds, servers
            )
            self._log_lost_later(lost_at)

    # -- reading -----------------------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        try:
            data, stat = await self._read(path, lambda: self._kazoo.get_async(path, self._armed(watch, path)))
        except NoNode:
            return None
        return data or b"", _stat(stat)

    async def get_dated(self, path: str) -> tuple[bytes, int] | None:
        """Return the data, and the time when it was written, in ms by ZooKeeper's clock."""
        try:
            data, stat = await self._read(path, lambda: self._kazoo.get_async(path))
        except NoNode:
            return None
        return data or b"", int(stat.mtime)

    async def open_permissions(self, path: str) -> int:
        """Return what everyone may do with a node: a bit mask of ZooKeeper's permissions (kazoo.security.Permissions).

        It is 0 where the access control list cannot be read either. Raises NoNode.
        """
        try:
            acls, _ = await self._read(path, lambda: self._kazoo.get_acls_async(path))
        except StoreFailed as error:
            if isinstance(error.__cause__, kazoo_errors.NoAuthError):
                return 0
            raise
        return reduce(or_, (acl.perms for acl in acls if acl.id.scheme == "world"), 0)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        found: list[tuple[bytes, Stat] | None] = []
        if watch is None and len(paths) >= MANY and await self._reads_many():
            parts = [paths[at : at + READ_BY_ONE_REQUEST] for at in range(0, len(paths), READ_BY_ONE_REQUEST)]
            for part in await asyncio.gather(*map(self._get_many, parts)):
                found += part
            return found
        for first in range(0, len(paths), MAX_READS_AT_ONCE):
            found += await asyncio.gather(*(self.get(path, watch) for path in paths[first : first + MAX_READS_AT_ONCE]))
        return found

    async def _get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        found: list[tuple[bytes, Stat] | None] = []
        nodes = await self._read(paths[0], lambda: multi_read(self._kazoo, paths))
        for path, node in zip(paths, nodes, strict=True):
            if isinstance(node, Exception):
                raise _ERRORS.get(type(node), StoreFailed)(path, str(node)) from node
            found.append(None if node is None else (node[0], _stat(node[1])))
        return found

    async def _reads_many(self) -> bool:
        """Return whether the servers know MultiRead: tried once, in a session of its own, as an older server ends
        it."""
        async with self._probing:
            if self._can_read_many is None:
                self._can_read_many = await self._probe()
            return bool(self._can_read_many)

    async def _probe(self) -> bool | None:
        assert self._loop is not None
        client = self._client()
        connected = asyncio.Event()
        client.add_listener(lambda state: self._post(connected.set) if state == KazooState.CONNECTED else None)
        answered: asyncio.Future[Any] = self._loop.create_future()
        try:
            await self._connect(client, connected)
        except StoreFailed:
            return None
        try:
            multi_read(client, ("/zookeeper",)).rawlink(partial(self._post, _complete, answered))
            async with asyncio.timeout(PROBED_FOR_S):
                await answered
            return True
        except (TimeoutError, kazoo_errors.KazooException, kazoo_errors.ConnectionClosedError) as error:
            _log.info("ZooKeeper reads one node at a time: it does not know multiRead (%r)", error)
            return False
        finally:
            await asyncio.to_thread(end_client, client)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._read(path, lambda: self._kazoo.exists_async(path, self._armed(watch, path)))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        armed = self._armed(watch, path, EventKind.CHILDREN)
        return list(await self._read(path, lambda: self._kazoo.get_children_async(path, armed)))

    def _armed(
        self, watch: Watch | None, path: str, kind: EventKind = EventKind.CHANGED
    ) -> Callable[[Any], None] | None:
        if watch is None:
            return None

        def called(event: Any) -> None:
            # Of type NONE: the connection or the session was lost, and the watch with it.
            happened = WatchEvent(_KINDS.get(event.type, kind), event.path or path)
            self._post(self._call, watch, happened)

        return called

    def _call(self, watch: Watch, event: WatchEvent) -> None:
        if self._closed:
            return
        try:
            watch(event)
        except Exception:
            _log.exception("The watch of %s failed", event.path)

    async def _read(self, path: str, send: Callable[[], Any]) -> Any:
        while True:
            try:
                return await self._request(path, send)
            except Lost:
                continue

    # -- writing -----------------------------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        operation = Create(path, data, ephemeral, sequential)
        try:
            (made,) = await self.multi([operation])
        except NoNode:
            if not make_parents:
                raise
            for parent in ancestors_of(path):
                with suppress(NodeExists):
                    await self.create(parent)
            (made,) = await self.multi([operation])
        assert isinstance(made, str)
        return made

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self.multi([Set(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def overwrite(self, path: str, data: bytes, version: int = ANY_VERSION) -> bool:
        await self.set(path, data, version)
        return True

    async def multi(self, operations: Iterable[Operation]) -> list[Result]:
        operations = list(operations)
        doubtful = 0
        while True:
            try:
                return _results(operations, await self._request(operations[0].path, lambda: self._sent(operations)))
            except Lost:
                doubtful += 1
                if doubtful == LARGE_WRITES_TRIED and (size_bytes := _size_of(operations)) > LARGE_BYTES:
                    # A server closes the connection on which it receives more than it accepts.
                    raise TooLarge(operations[-1].path, size_bytes) from None
            except (NoNode, NodeExists, BadVersion, NotEmpty):
                # Possibly refused because the first attempt, whose response was lost, did it.
                done = await _found_done(self, operations) if doubtful else None
                if done is None:
                    raise
                return done

    def _sent(self, operations: Sequence[Operation]) -> Any:
        transaction = self._kazoo.transaction()
        for operation in operations:
            match operation:
                case Check(path, version):
                    transaction.check(path, version)
                case Create(path, data, ephemeral, sequential):
                    # kazoo's own method would drop the slash before a name that is only the sequence number.
                    flags = ephemeral | sequential << 1
                    # No data is not the same as data of no bytes: Apache Kafka tries to decode the latter.
                    acl = node_acl(path, set_acl=self._settings.security.set_acl)
                    request = CreateRequest(self._kazoo.chroot + path, data or None, acl, flags)
                    transaction.operations.append(request)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
        return transaction.commit_async()

    # -- one request -------------------------------------------------------------------------------------------

    async def _request(self, path: str, send: Callable[[], Any]) -> Any:
        """Return the response. Raises Lost, and the errors of `_ERRORS`."""
        assert self._loop is not None
        async with self._room:
            await self._connected.wait()
            if self._closed:
                raise StoreFailed(path, "closed")
            answered: asyncio.Future[Any] = self._loop.create_future()
            send().rawlink(partial(self._post, _complete, answered))
            try:
                return await answered
            except (kazoo_errors.ConnectionLoss, kazoo_errors.ConnectionClosedError, RuntimeError) as error:
                # RuntimeError is kazoo's for a response to another request: its thread ends, and the connection.
                if self._closed:
                    raise StoreFailed(path, "closed") from error
                raise Lost from error
            except kazoo_errors.KazooException as error:
                raise _ERRORS.get(type(error), StoreFailed)(path, str(error)) from error


def _results(operations: Sequence[Operation], answers: Sequence[Any]) -> list[Result]:
    for operation, answer in zip(operations, answers, strict=True):
        # The results of the other operations only mean that one has failed.
        if isinstance(answer, Exception) and type(answer) in _ERRORS:
            raise _ERRORS[type(answer)](operation.path)
    if isinstance(answers[0], Exception):
        raise StoreFailed(operations[0].path, f"ZooKeeper answered {answers}")
    return [
        answer if isinstance(answer, str) else _stat(answer) if isinstance(answer, ZnodeStat) else None
        for answer in answers
    ]


def _tls_context(security: ZooKeeperSecurity) -> Callable[[], Any] | None:
    if security.tls is None:
        return None
    context = client_context(security.tls)
    return lambda: context


def _sasl_options(security: ZooKeeperSecurity) -> dict[str, str] | None:
    if security.user is None or security.password is None:
        return None
    return {"mechanism": "DIGEST-MD5", "username": security.user, "password": security.password}


def _complete(answered: asyncio.Future[Any], result: Any) -> None:
    if answered.done():
        return
    if result.exception is None:
        answered.set_result(result.value)
    else:
        answered.set_exception(result.exception)


async def _found_done(store: ZooKeeperStore, operations: Sequence[Operation]) -> list[Result] | None:
    """Return the results, if the effect of the operations is there; None if it is not, or is not known.

    A sequential Create is not found, as its name is not known: as part of a multi it was done with the others, and
    its result is None.
    """
    if all(isinstance(one, Check) or _is_sequential(one) for one in operations):
        return None  # checks have no effect, and fail now
    results: list[Result] = []
    for operation in operations:
        if isinstance(operation, Check) or _is_sequential(operation):
            results.append(None)
            continue
        found = await store.get(operation.path)
        match operation:
            case Create(path, data, ephemeral):
                owner = store.session_id if ephemeral else 0
                if found is None or found[0] != data or found[1].ephemeral_owner != owner:
                    return None
                results.append(path)
            case Set(_, data, version):
                if found is None or found[0] != data or found[1].version != version + 1 > 0:
                    return None
                results.append(found[1])
            case Delete():
                if found is not None:
                    return None
                results.append(None)
    return results


def _is_sequential(operation: Operation) -> bool:
    return isinstance(operation, Create) and operation.sequential


def _size_of(operations: Iterable[Operation]) -> int:
    """Return the approximate size of a write."""
    return sum(len(one.path) + (len(one.data) if isinstance(one, Create | Set) else 0) for one in operations)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.czxid, stat.ephemeralOwner, stat.mzxid)
