"""ZooKeeper's node tree in memory: rules only, no storage, no thread.

Versions, creation ids, ephemeral owners, the sequence suffix, atomic multis, and which watches a write calls are
exactly as in ZooKeeper, because the same controller runs on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gregor.replication.store.metadata_store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    Set,
    Stat,
    Watch,
    WatchEvent,
    parent_of,
)


class Node:
    """`creates` counts the children ever created, and so numbers the sequential ones (ZooKeeper's inner cversion)."""

    __slots__ = ("children", "creates", "czxid", "data", "owner", "version")

    def __init__(self, data: bytes, version: int, czxid: int, owner: int, creates: int) -> None:
        self.data = data
        self.version = version
        self.czxid = czxid
        self.owner = owner
        self.creates = creates
        self.children: set[str] | None = None

    @property
    def stat(self) -> Stat:
        return Stat(self.version, self.czxid, self.owner)

    def replace_data(self, data: bytes) -> Callable[[], None]:
        """Replace the data by that of the next version; returns the call that undoes it."""
        before = self.data, self.version

        def undo() -> None:
            self.data, self.version = before

        self.data = data
        self.version += 1
        return undo

    def add_child(self, name: str) -> None:
        """Note a child that exists."""
        if self.children is None:
            self.children = set()
        self.children.add(name)

    def remove_child(self, name: str) -> None:
        """Note that a child is deleted."""
        assert self.children is not None
        self.children.remove(name)
        if not self.children:
            self.children = None

    def count_creation(self) -> Callable[[], None]:
        """Count a child that is created; returns the call that undoes it."""
        self.creates += 1

        def undo() -> None:
            self.creates -= 1

        return undo


class Row(NamedTuple):
    """A node as it is stored; the fields after the path are those of Node."""

    path: str
    data: bytes
    version: int
    czxid: int
    owner: int
    creates: int


def check_rows(rows: Iterable[Row], numbers: Iterable[object] = ()) -> None:
    """Check that stored rows make up a tree, and that `numbers`, stored beside them, are numbers: SQLite detects a
    damaged page only if it cannot read it. Raises ValueError."""
    paths = {row[0] for row in rows}
    for path, data, *counts in rows:
        if type(path) is not str or type(data) is not bytes or any(type(count) is not int for count in counts):
            raise ValueError(f"damaged: the node {path!r} has values of other types")
        parent_path, slash, name = path.rpartition("/")
        if path != "/" and (not slash or not name or (parent_path and parent_path not in paths)):
            raise ValueError(f"damaged: no node lies above {path!r}")
    if any(type(number) is not int for number in numbers):
        raise ValueError("damaged: a counter is not a number")


class Change(NamedTuple):
    """The effect of one multi: results for the caller, rows to store, paths to delete, watches to call once stored."""

    zxid: int
    results: list[Result]
    rows: list[Row]
    deleted: list[str]
    watches: list[tuple[Watch, WatchEvent]]
    undo: list[Callable[[], None]]

    def roll_back(self) -> None:
        """Undo the change; the changes after it must have been undone before. Its watches are not set again."""
        for step in reversed(self.undo):
            step()


class NodeTree:
    """The tree and its watches. `zxid` numbers the writes; one multi is one write."""

    def __init__(self, rows: Iterable[Row] = (), zxid: int = 0) -> None:
        self.zxid = zxid
        self._nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0, 0)}
        # Data watches are set by get and exists, child watches by children; `exists` may watch an absent path.
        self._data_watches: dict[str, list[Watch]] = {}
        self._child_watches: dict[str, list[Watch]] = {}
        for path, data, version, czxid, owner, creates in rows:
            self._nodes[path] = Node(data, version, czxid, owner, creates)
        for path in self._nodes:
            if path != "/":
                self._link(path)

    def __len__(self) -> int:
        return len(self._nodes)

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, path: str, watch: Watch | None) -> tuple[bytes, Stat] | None:
        node = self._nodes.get(path)
        if node is None:
            return None
        if watch is not None:
            self._data_watches.setdefault(path, []).append(watch)
        return node.data, node.stat

    def exists(self, path: str, watch: Watch | None) -> Stat | None:
        node = self._nodes.get(path)
        if watch is not None:
            self._data_watches.setdefault(path, []).append(watch)
        return None if node is None else node.stat

    def children(self, path: str, watch: Watch | None) -> list[str]:
        node = self._node(path)
        if watch is not None:
            self._child_watches.setdefault(path, []).append(watch)
        return list(node.children or ())

    def owned_by(self, session_id: int | None) -> list[str]:
        """Return the ephemeral nodes of one session, or of all."""
        return [
            path
            for path, node in self._nodes.items()
            if node.owner and (session_id is None or node.owner == session_id)
        ]

    def missing_parents(self, path: str) -> list[str]:
        """Return the ancestors of `path` that do not exist, topmost first."""
        missing = []
        while (path := parent_of(path)) not in self._nodes:
            missing.append(path)
        return missing[::-1]

    def drop_watches(self) -> None:
        self._data_watches.clear()
        self._child_watches.clear()

    # -- writing -----------------------------------------------------------------------------------------------

    def apply(self, operations: Iterable[Operation], session_id: int) -> Change:
        """Do all operations, or none and raise the first one's error."""
        undo: list[Callable[[], None]] = []
        touched: dict[str, None] = {}
        events: list[WatchEvent] = []
        results: list[Result] = []
        self.zxid += 1
        try:
            for operation in operations:
                if isinstance(operation, Check):
                    self._checked(operation.path, operation.version)
                    results.append(None)
                elif isinstance(operation, Create):
                    results.append(self._create(operation, session_id, undo, touched, events))
                elif isinstance(operation, Set):
                    results.append(self._set(operation, undo, touched, events))
                else:
                    self._delete(operation.path, operation.version, undo, touched, events)
                    results.append(None)
        except Exception:
            for step in reversed(undo):
                step()
            self.zxid -= 1
            raise
        rows = []
        deleted = []
        for path in touched:
            node = self._nodes.get(path)
            if node is None:
                deleted.append(path)
            else:
                rows.append(Row(path, node.data, node.version, node.czxid, node.owner, node.creates))
        return Change(self.zxid, results, rows, deleted, self._pop_watches(events), undo)

    def _create(
        self,
        operation: Create,
        session_id: int,
        undo: list[Callable[[], None]],
        touched: dict[str, None],
        events: list[WatchEvent],
    ) -> str:
        path = operation.path
        parent_path = parent_of(path)
        parent = self._node(parent_path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        if operation.sequential:
            path = f"{path}{parent.creates:010d}"
        if path in self._nodes:
            raise NodeExists(path)
        self._nodes[path] = Node(operation.data, 0, self.zxid, session_id if operation.ephemeral else 0, 0)
        self._link(path)

        def roll_back() -> None:
            self._unlink(path)
            del self._nodes[path]

        undo += [parent.count_creation(), roll_back]
        touched[path] = touched[parent_path] = None
        events.append(WatchEvent(EventKind.CREATED, path))
        events.append(WatchEvent(EventKind.CHILDREN, parent_path))
        return path

    def _set(
        self,
        operation: Set,
        undo: list[Callable[[], None]],
        touched: dict[str, None],
        events: list[WatchEvent],
    ) -> Stat:
        node = self._checked(operation.path, operation.version)
        undo.append(node.replace_data(operation.data))
        touched[operation.path] = None
        events.append(WatchEvent(EventKind.CHANGED, operation.path))
        return node.stat

    def _delete(
        self,
        path: str,
        version: int,
        undo: list[Callable[[], None]],
        touched: dict[str, None],
        events: list[WatchEvent],
    ) -> None:
        node = self._checked(path, version)
        if node.children or path == "/":
            raise NotEmpty(path)

        def roll_back() -> None:
            self._nodes[path] = node
            self._link(path)

        self._unlink(path)
        del self._nodes[path]
        undo.append(roll_back)
        touched[path] = None
        events.append(WatchEvent(EventKind.DELETED, path))
        events.append(WatchEvent(EventKind.CHILDREN, parent_of(path)))

    def _node(self, path: str) -> Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def _checked(self, path: str, version: int) -> Node:
        node = self._node(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, f"is at version {node.version}, not {version}")
        return node

    def _link(self, path: str) -> None:
        parent_path, _, name = path.rpartition("/")
        self._nodes[parent_path or "/"].add_child(name)

    def _unlink(self, path: str) -> None:
        parent_path, _, name = path.rpartition("/")
        self._nodes[parent_path or "/"].remove_child(name)

    def _pop_watches(self, events: list[WatchEvent]) -> list[tuple[Watch, WatchEvent]]:
        """Remove and return the watches that these events call. A deletion ends the node's child watches as well."""
        popped: list[tuple[Watch, WatchEvent]] = []
        for event in events:
            if event.kind is not EventKind.CHILDREN:
                popped.extend((watch, event) for watch in self._data_watches.pop(event.path, ()))
            if event.kind in (EventKind.CHILDREN, EventKind.DELETED):
                popped.extend((watch, event) for watch in self._child_watches.pop(event.path, ()))
        return popped
