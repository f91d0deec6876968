"""The metadata store: the part of ZooKeeper that the controller and the brokers use.

A tree of nodes. A path is absolute ("/brokers/ids/0"); a node has data, a data version (0 at creation, +1 with each
set), a creation id (`czxid`, growing over the whole tree with each write) and, if ephemeral, an owning session at whose
end it is deleted. Two implementations behave alike: `replication.store.embedded` and, for clusters, ZooKeeper itself.

All methods are called on the event loop's thread, and so are the callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.turns import Gate

ANY_VERSION = -1


class StoreError(Exception):
    """The base of the errors that a store raises. `path` is the node that the error is about."""

    def __init__(self, path: str, message: str = "") -> None:
        super().__init__(f"{path}: {message}" if message else path)
        self.path = path


class NoNode(StoreError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExists(StoreError):
    """The node to create exists."""


class BadVersion(StoreError):
    """The node's version is not the one the write was made for: another process wrote in between."""


class NotEmpty(StoreError):
    """The node to delete has children."""


class NoChildrenForEphemerals(StoreError):
    """The parent is ephemeral."""


class SessionExpired(StoreError):
    """The session is over and its ephemeral nodes are gone; the write was not done."""


class StoreFailed(StoreError):
    """The store does not work any more (disk broken, file damaged). Nothing written from now on is kept."""


class StoreFull(StoreError, KafkaError):
    """The store's disk is full: the write was not done, and can be tried again later."""

    def __init__(self, path: str) -> None:
        StoreError.__init__(self, path, "no room on the disk of the metadata store")
        self.code = ErrorCode.KAFKA_STORAGE_ERROR
        self.message = "the disk of the metadata store is full"


class TooLarge(StoreError, KafkaError):
    """The write is larger than the store accepts: it was not done, and cannot be."""

    def __init__(self, path: str, size_bytes: int) -> None:
        text = (
            f"a write of {size_bytes} bytes to ZooKeeper ends the connection: give fewer partitions, replicas or"
            " settings at a time, or raise jute.maxbuffer of its servers"
        )
        StoreError.__init__(self, path, text)
        self.code = ErrorCode.INVALID_REQUEST
        self.message = text


class Stat(NamedTuple):
    version: int
    czxid: int
    ephemeral_owner: int
    """Session id of the owner, 0 for persistent nodes."""
    mzxid: int = 0
    """Number of the write that gave the node its data, comparable with creation ids; 0 where the store does not keep
    it, as the store of a single broker does not."""


class EventKind(Enum):
    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    kind: EventKind
    path: str


Watch = Callable[[WatchEvent], None]


class Check(NamedTuple):
    """In a multi: continue only if the node is at this version (-1: if it exists)."""

    path: str
    version: int


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False
    """Append the 10-digit count of children ever created under the parent."""


class Set(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete
Result = str | Stat | None
"""Of a Create the created path, of a Set the new Stat, of the others None. In a multi also of a sequential Create whose
first answer was lost."""


class MetadataStore(Protocol):
    """The interface. Reads see every write that this store has answered, and possibly writes not answered yet.

    A watch is called once, after the first change of its kind, and must then be set again with the next read:
    on `get` (node must exist): changed or deleted; on `exists`: created, changed or deleted; on `children` (node must
    exist): a child came or went, or the node itself was deleted.
    """

    session_id: int
    on_session_expired: list[Callable[[], None]]
    """Called when the session was lost for good and a new one begins: ephemeral nodes and watches are gone."""

    @property
    def is_connected(self) -> bool:
        """Return whether calls are answered now; else they wait until a server is found again."""

    async def start(self) -> None: ...

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """Return data and Stat, or None (and set no watch) if there is no such node."""

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        """Return the result of `get` for each path, in one round trip as far as possible."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None: ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return names, in no order. Raises NoNode."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Return the created path. Raises NodeExists, NoNode (parent), NoChildrenForEphemerals, SessionExpired."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Return the new Stat. Raises NoNode, BadVersion, SessionExpired."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNode, BadVersion, NotEmpty, SessionExpired."""

    async def multi(self, operations: Iterable[Operation]) -> list[Result]:
        """Do all operations or none, in order, each seeing the ones before it. Raises the error of the first that
        fails."""

    async def overwrite(self, path: str, data: bytes, version: int = ANY_VERSION) -> bool:
        """Set the data, and erase what this and other writes have replaced or deleted from the files of this store, if
        it has files; what ZooKeeper's servers keep of it stays. False if the disk has no room to erase it yet: a later
        write does it then, and so does the next start, also after a crash. Raises as `set`."""


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def ancestors_of(path: str) -> list[str]:
    """Return the nodes above a path, topmost first, without the root."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(2, len(names))]


async def subtree(store: MetadataStore, path: str, gate: Gate) -> list[str]:
    """Return the node and all below it, children before parents: the order of deletion. Empty without such a node."""
    found = [path]
    turns = gate.turns()
    try:
        for node in found:
            await turns.next()
            found.extend(f"{node}/{name}" for name in await store.children(node))
    except NoNode as error:
        # A node was deleted meanwhile: start over, unless it is the topmost.
        return [] if error.path == path else await subtree(store, path, gate)
    return found[::-1]
