"""The metadata store: what the controller and the brokers need of ZooKeeper, and nothing more.

A tree of nodes. A path is absolute ("/brokers/ids/0"); a node has data, a data version (0 at creation, +1 with each
set), a creation id (`czxid`, growing over the whole tree with each write) and, if ephemeral, an owning session with
which it goes. Two implementations answer alike: `replication.store.embedded` and, for clusters, ZooKeeper itself.

All methods are called on the event loop's thread, and callbacks come there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.turns import Gate

ANY_VERSION = -1


class StoreError(Exception):
    """The base of what a store raises. `path` is the node the refusal is about."""

    def __init__(self, path: str, message: str = "") -> None:
        super().__init__(f"{path}: {message}" if message else path)
        self.path = path


class NoNode(StoreError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExists(StoreError):
    """The node to create exists."""


class BadVersion(StoreError):
    """The node's version is not the one the write was made for: somebody else wrote in between."""


class NotEmpty(StoreError):
    """The node to delete has children."""


class NoChildrenForEphemerals(StoreError):
    """The parent is ephemeral."""


class SessionExpired(StoreError):
    """The session is over and its ephemeral nodes are gone; a write's outcome is: not done."""


class StoreFailed(StoreError):
    """The store cannot work any more (disk broken, file damaged). Nothing written from now on is kept."""


class StoreFull(StoreError, KafkaError):
    """The store's disk has no room: the write was not done, and can be tried again later."""

    def __init__(self, path: str) -> None:
        StoreError.__init__(self, path, "no room on the disk of the metadata store")
        self.code = ErrorCode.KAFKA_STORAGE_ERROR
        self.message = "the disk of the metadata store is full"


class TooLarge(StoreError, KafkaError):
    """The store does not take so much in one write: it was not done, and will not be."""

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
    """Number of the write that gave the node its data, to be compared with creation ids; 0 where the store does not
    keep it, as that of a single broker."""


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
    """In a multi: go on only if the node is at this version (-1: if it exists)."""

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
"""Of a Create the path made, of a Set the new Stat, of the others None."""


class MetadataStore(Protocol):
    """The interface. Reads see every write this store has answered, and possibly some it has not answered yet.

    A watch is called once, after the first change of its kind, and must then be set anew with the next read:
    on `get` (node must exist): changed or deleted; on `exists`: created, changed or deleted; on `children` (node must
    exist): a child came or went, or the node itself was deleted.
    """

    session_id: int
    on_session_expired: list[Callable[[], None]]
    """Called when the session was lost for good and a new one begins: ephemeral nodes and watches are gone."""

    @property
    def is_connected(self) -> bool:
        """Whether calls are answered now; else they wait until a server is found again."""

    async def start(self) -> None: ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes go."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """Data and Stat, or None (and no watch) if there is no such node."""

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[tuple[bytes, Stat] | None]:
        """`get` for each path, in one round trip as far as possible."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None: ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, in no order. Raises NoNode."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """The path made. Raises NodeExists, NoNode (parent), NoChildrenForEphemerals, SessionExpired."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """The new Stat. Raises NoNode, BadVersion, SessionExpired."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNode, BadVersion, NotEmpty, SessionExpired."""

    async def multi(self, operations: Iterable[Operation]) -> list[Result]:
        """All or nothing, in order, each seeing its predecessors. Raises the error of the first that fails."""


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


async def subtree(store: MetadataStore, path: str, gate: Gate) -> list[str]:
    """The node and all below it, children before parents, as they can be deleted. Empty if there is no such node."""
    found = [path]
    turns = gate.turns()
    try:
        for node in found:
            await turns.next()
            found.extend(f"{node}/{name}" for name in await store.children(node))
    except NoNode as error:
        # Gone while we looked: start over, unless it is all gone.
        return [] if error.path == path else await subtree(store, path, gate)
    return found[::-1]
