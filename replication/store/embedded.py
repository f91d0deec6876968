"""The metadata store of a single node: a tree in memory, kept in one SQLite file of the first log folder.

Plain files only (`gregor-metadata.sqlite` and SQLite's own `-wal` beside it): Apache Kafka refuses a data folder with
directories it does not know, files it ignores.

A write changes the tree at once, on the loop. The store's own thread has SQLite commit it; then the write is answered,
and its watches are called. Writes that are queued meanwhile share a transaction. A commit is synced to the disk: it
survives a power cut, as in ZooKeeper. Otherwise producer ids would be given out again of which the logs have batches.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from gregor.replication.store.metadata_store import (
    ANY_VERSION,
    Create,
    Delete,
    Operation,
    Result,
    Set,
    Stat,
    StoreFailed,
    StoreFull,
    Watch,
)
from gregor.replication.store.node_tree import Change, NodeTree, Row, check_rows

FILE_NAME = "gregor-metadata.sqlite"
FORMAT_VERSION = 1
RESERVED_BYTES = 1024 * 1024
"""Of the write-ahead log; a write needs some 10 KB."""
_ERASURE = "erasure"
CHECKPOINT_PAGES = 200
"""Of 4 KB: with as many in the log SQLite writes them to the file, and reuses the space of the log from its start."""

# owner is the session id of an ephemeral node, else 0; creates is how many children were ever made below the node.
# counter holds "zxid" and "session", the last ones given out, and _ERASURE as long as an erasure is unfinished.
_SCHEMA = f"""
CREATE TABLE node (path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, czxid INTEGER NOT NULL,
                   owner INTEGER NOT NULL, creates INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('zxid', 0), ('session', 0);
PRAGMA user_version = {FORMAT_VERSION};
"""

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
_Contents = tuple[list[Row], int, int]  # rows, last zxid, this session's id


class _Job(NamedTuple):
    """A change to store."""

    change: Change
    committed: asyncio.Future[bool]
    """Whether the files have nothing any more that was overwritten."""
    overwrites: bool


class EmbeddedStore:
    """A MetadataStore (see there) in one process. Its session lasts as long as the store is open.

    `on_failed` is called, once, when the file can no longer be written; from then on writes raise StoreFailed.

    A full disk is no failure: the write is rolled back, with all writes behind it, and raises StoreFull (`on_full` is
    called each time); the next write is tried like any other.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.session_id = 0
        self.on_session_expired: list[Callable[[], None]] = []
        self.on_failed: list[Callable[[StoreFailed], None]] = []
        self.on_full: list[Callable[[], None]] = []
        self._tree = NodeTree()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Future[None] | None = None
        self._failure: StoreFailed | None = None
        self._closing = False
        self._rolled_back = threading.Event()
        self._erasure_due = False
        """Used by the store's thread only, as the counter _ERASURE of the file."""

    @property
    def is_connected(self) -> bool:
        return True

    async def start(self) -> None:
        """Open the file, or create it, and begin a session: ephemeral nodes of earlier ones are deleted.

        Raises StoreFailed if the file is of another program, damaged, in use, or from a newer gregor.
        """
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[_Contents] = loop.create_future()
        self._ended = loop.create_future()
        work = (loop, opened, self._ended)
        self._thread = threading.Thread(target=self._work, args=work, name="metadata-store", daemon=True)
        self._thread.start()
        try:
            rows, zxid, self.session_id = await opened
        except StoreFailed:
            self._thread = None
            raise
        self._tree = NodeTree(rows, zxid)
        stale = self._tree.owned_by(None)
        if stale:
            await self.multi([Delete(path) for path in stale])

    async def close(self) -> None:
        """End the session: delete its ephemeral nodes, wait until everything is in the file, close it."""
        if self._thread is None:
            return
        self._closing = True
        mine = self._tree.owned_by(self.session_id)
        if mine and self._failure is None:
            with suppress(StoreFailed, StoreFull):  # the next start deletes the nodes of this session
                await self.multi([Delete(path) for path in mine])
        self._jobs.put(None)
        if self._ended is not None:
            await self._ended
        self._thread.join()
        self._thread = None
        self._failure = self._failure or StoreFailed(self.path, "closed")
        self._tree.drop_watches()

    # -- reading -----------------------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        return self._tree.get(path, watch)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        return [self._tree.get(path, watch) for path in paths]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self._tree.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._tree.children(path, watch)

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
        operations = [Create(parent) for parent in self._tree.missing_parents(path)] if make_parents else []
        operations.append(Create(path, data, ephemeral, sequential))
        made = (await self.multi(operations))[-1]
        assert isinstance(made, str)
        return made

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat = (await self.multi([Set(path, data, version)]))[0]
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Iterable[Operation]) -> list[Result]:
        results, _ = await self._write(operations)
        return results

    async def overwrite(self, path: str, data: bytes, version: int = ANY_VERSION) -> bool:
        _, erased = await self._write([Set(path, data, version)], overwrites=True)
        return erased

    async def _write(self, operations: Iterable[Operation], *, overwrites: bool = False) -> tuple[list[Result], bool]:
        if self._failure is not None:
            raise self._failure
        change = self._tree.apply(operations, self.session_id)
        committed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(change, committed, overwrites))
        # Cancelling the caller does not undo the write: it is stored, and its watches are called.
        return change.results, await committed

    def _disk_full(self, jobs: list[_Job]) -> None:
        """Roll back the changes that are in the tree and not in the file, the latest first: nothing is lost."""
        with suppress(queue.Empty):
            while (job := self._jobs.get_nowait()) is not None:
                jobs.append(job)
            self._jobs.put(None)
        for job in reversed(jobs):
            job.change.roll_back()
        self._rolled_back.set()
        for change, future, _ in jobs:
            _fail(future, StoreFull(self.path))
            # The watchers read the node again, find it as it was, and set their watches again.
            self._call(change)
        if not self._closing:
            for callback in self.on_full:
                callback()

    def _committed(self, jobs: list[_Job], erased: bool) -> None:
        for change, future, _ in jobs:
            _complete(future, erased)
            self._call(change)

    @staticmethod
    def _call(change: Change) -> None:
        for watch, event in change.watches:
            try:
                watch(event)
            except Exception:
                _log.exception("The watch of %s failed", event.path)

    def _failed(self, jobs: list[_Job], error: Exception) -> None:
        # The tree stays ahead of the file: the broker must stop soon, as it would act on changes that are not stored.
        first = self._failure is None
        self._failure = self._failure or StoreFailed(self.path, str(error))
        for _, future, _ in jobs:
            _fail(future, self._failure)
        if first and not self._closing:
            for callback in self.on_failed:
                callback(self._failure)

    # -- the store's thread --------------------------------------------------------------------------------------

    def _work(
        self, loop: asyncio.AbstractEventLoop, opened: asyncio.Future[_Contents], ended: asyncio.Future[None]
    ) -> None:
        try:
            connection, contents = self._open()
        except Exception as error:
            reason = str(error)
            if _is_full(error):
                reason = "no room on its disk to begin with: free some, then start again"
            loop.call_soon_threadsafe(_fail, opened, StoreFailed(self.path, reason))
            return
        loop.call_soon_threadsafe(_complete, opened, contents)
        failure: Exception | None = None
        closing = False
        while not closing:
            jobs, closing = self._next_jobs()
            if jobs and failure is None:
                try:
                    if self._stored(connection, jobs):
                        self._erasure_due |= any(job.overwrites for job in jobs)
                        if self._erasure_due:
                            self._erasure_due = not self._erased(connection)
                        loop.call_soon_threadsafe(self._committed, jobs, not self._erasure_due)
                    else:
                        self._rolled_back.clear()
                        loop.call_soon_threadsafe(self._disk_full, jobs)
                        self._rolled_back.wait()
                    continue
                except Exception as error:
                    # Final: a later write stored without this one would make the tree inconsistent.
                    failure = error
            if failure is not None:
                loop.call_soon_threadsafe(self._failed, jobs, failure)
        connection.close()
        loop.call_soon_threadsafe(_complete, ended, None)

    def _next_jobs(self) -> tuple[list[_Job], bool]:
        """Return all jobs queued by now, at least one; and whether the store is to be closed after them."""
        jobs: list[_Job] = []
        item = self._jobs.get()
        while item is not None:
            jobs.append(item)
            if self._jobs.empty():
                return jobs, False
            item = self._jobs.get()
        return jobs, True

    def _open(self) -> tuple[sqlite3.Connection, _Contents]:
        self._close_to_others()
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=0)
        try:
            # Exclusive before WAL: then SQLite needs no shared-memory file, and refuses a second process.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            # Of what is replaced or deleted from now on nothing stays in the file itself. The log, and free space of a
            # file from before, may still have it: see `_erased`.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
            elif version != FORMAT_VERSION:
                raise ValueError(f"format {version} of a newer gregor; this one reads {FORMAT_VERSION}")
            connection.execute("UPDATE counter SET value = value + 1 WHERE name = 'session'")
            counters = dict(connection.execute("SELECT name, value FROM counter"))
            rows = [
                Row(*row) for row in connection.execute("SELECT path, data, version, czxid, owner, creates FROM node")
            ]
            check_rows(rows, counters.values())
            connection.execute("COMMIT")
            if _ERASURE in counters:
                self._resume_erasure(connection)
            self._reserve_log()
        except Exception:
            connection.close()
            raise
        return connection, (rows, counters["zxid"], counters["session"])

    def _close_to_others(self) -> None:
        """Let only this user read the file, which has credentials; SQLite's log gets the same permissions."""
        with suppress(OSError):  # SQLite reports what is wrong with the folder or the file
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except FileExistsError:
                os.chmod(self.path, 0o600)

    def _reserve_log(self) -> None:
        """Reserve space on the disk for the next writes, so that topics can still be deleted when it is full. Only in
        the write-ahead log, where zeros behind the last frame are no frame: SQLite's locks are on the other file, and
        closing another descriptor of that file would release them."""
        with suppress(OSError, AttributeError):  # not every system has the call
            descriptor = os.open(self.path + "-wal", os.O_RDWR)
            try:
                os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
            finally:
                os.close(descriptor)

    def _stored(self, connection: sqlite3.Connection, jobs: list[_Job]) -> bool:
        """Store the changes; False if the disk is full."""
        try:
            self._store(connection, jobs)
        except sqlite3.OperationalError as error:
            if not _is_full(error):
                raise
            return False
        return True

    def _resume_erasure(self, connection: sqlite3.Connection) -> None:
        """Erase what was overwritten before this start."""
        self._erasure_due = not self._erased(connection)
        if self._erasure_due:
            _log.warning(
                "%s still has passwords as they were before they were encrypted: its disk has no room to write the file"
                " anew. Free some; then the next write to the store removes them.",
                self.path,
            )
        else:
            _log.info(
                "%s is written anew: it still had passwords as they were before they were encrypted, because the broker"
                " ended while it removed them, or its disk was full",
                self.path,
            )

    def _erased(self, connection: sqlite3.Connection) -> bool:
        """Build the file anew of its present rows, and begin the log anew; False if the disk is full. Both change no
        node, and the file is complete after a crash at any moment; the next start resumes the erasure."""
        try:
            connection.execute("PRAGMA temp_store = MEMORY")  # the copy is not written to a folder of temporary files
            connection.execute("VACUUM")
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.execute("DELETE FROM counter WHERE name = ?", (_ERASURE,))
        except sqlite3.OperationalError as error:
            if not _is_full(error):
                raise
            return False
        assert not busy, "the lock is exclusive"
        self._reserve_log()
        return True

    @staticmethod
    def _store(connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        connection.execute("BEGIN")
        try:
            for change, _, overwrites in jobs:
                if overwrites:
                    # With the change: after a crash the clear text is the present one, or its erasure is known as due.
                    connection.execute("INSERT OR REPLACE INTO counter VALUES (?, 1)", (_ERASURE,))
                connection.executemany("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?)", change.rows)
                connection.executemany("DELETE FROM node WHERE path = ?", [(path,) for path in change.deleted])
            connection.execute("UPDATE counter SET value = ? WHERE name = 'zxid'", (jobs[-1].change.zxid,))
            connection.execute("COMMIT")
        except Exception:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _complete(future: asyncio.Future[ResultT], result: ResultT) -> None:
    """Complete a future, unless it was cancelled with what awaited it."""
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[ResultT], error: Exception) -> None:
    """Complete a future with an error, unless it was cancelled. That nothing awaits it is no error, too."""
    if not future.done():
        future.set_exception(error)
        future.exception()


def _is_full(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
