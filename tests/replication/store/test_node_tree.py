"""NodeTree against an obvious twin: a table of paths that is copied before each multi."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.replication.store.metadata_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Set,
    StoreError,
)
from gregor.replication.store.node_tree import NodeTree, Row, check_rows

SESSION = 5


class Twin:
    """Path -> [data, version, czxid, owner, creates]; parents and children are found by a search of all paths."""

    def __init__(self) -> None:
        self.nodes: dict[str, list[Any]] = {"/": [b"", 0, 0, 0, 0]}
        self.zxid = 0

    def apply(self, operations: list[Any]) -> None:
        before = copy.deepcopy(self.nodes)
        self.zxid += 1
        try:
            for operation in operations:
                self.one(operation)
        except StoreError:
            self.nodes = before
            self.zxid -= 1
            raise

    def one(self, operation: Any) -> None:
        path = operation.path
        parent = path.rpartition("/")[0] or "/"
        if isinstance(operation, Create):
            if parent not in self.nodes:
                raise NoNode(parent)
            if self.nodes[parent][3]:
                raise NoChildrenForEphemerals(path)
            if operation.sequential:
                path += str(self.nodes[parent][4]).zfill(10)
            if path in self.nodes:
                raise NodeExists(path)
            self.nodes[path] = [operation.data, 0, self.zxid, SESSION if operation.ephemeral else 0, 0]
            self.nodes[parent][4] += 1
            return
        if path not in self.nodes:
            raise NoNode(path)
        if operation.version not in (-1, self.nodes[path][1]):
            raise BadVersion(path)
        if isinstance(operation, Set):
            self.nodes[path][0] = operation.data
            self.nodes[path][1] += 1
        elif isinstance(operation, Delete):
            if any(other.startswith(path + "/") for other in self.nodes):
                raise NotEmpty(path)
            del self.nodes[path]


PATHS = st.sampled_from(["/a", "/b", "/a/c", "/a/d", "/a/c/e", "/b/f"])
VERSIONS = st.sampled_from([-1, -1, 0, 1])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=2), st.booleans(), st.booleans()),
    st.builds(Create, PATHS),
    st.builds(Set, PATHS, st.binary(max_size=2), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


def contents(tree: NodeTree, path: str = "/") -> dict[str, Any]:
    found = tree.get(path, None)
    assert found is not None
    data, stat = found
    result = {path: [data, stat.version, stat.czxid, stat.ephemeral_owner]}
    for name in tree.children(path, None):
        result |= contents(tree, f"{path.rstrip('/')}/{name}")
    return result


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=10))
def test_every_multi_has_the_same_effect_as_on_the_twin(multis: list[list[Any]]) -> None:
    tree, twin = NodeTree(), Twin()
    stored: dict[str, Row] = {}
    for operations in multis:
        errors: list[type[Exception] | None] = []
        change = None
        for apply in (lambda given: tree.apply(given, SESSION), twin.apply):
            try:
                change = apply(operations) or change
                errors.append(None)
            except StoreError as error:
                errors.append(type(error))
        assert errors[0] == errors[1]
        assert tree.zxid == twin.zxid
        assert contents(tree) == {path: node[:4] for path, node in twin.nodes.items()}
        if change is not None:
            stored.update({row.path: row for row in change.rows})
            for path in change.deleted:
                stored.pop(path, None)
    # The stored rows make the same tree again, with its sequence numbers.
    again = NodeTree(stored.values(), tree.zxid)
    assert contents(again) == contents(tree)
    assert {path: row.creates for path, row in stored.items()} == {
        p: node[4] for p, node in twin.nodes.items() if p in stored
    }


def test_the_root_stays() -> None:
    tree = NodeTree()
    for operation in (Delete("/"), Create("/")):
        try:
            tree.apply([operation], SESSION)
        except StoreError:
            continue
        raise AssertionError(operation)
    assert len(tree) == 1


@pytest.mark.parametrize(
    "row",
    [
        Row("/a/b/c", b"", 0, 1, 0, 0),
        Row("/a/b/", b"", 0, 1, 0, 0),
        Row("a", b"", 0, 1, 0, 0),
        Row("", b"", 0, 1, 0, 0),
        Row("/b", "text", 0, 1, 0, 0),  # type: ignore[arg-type]
        Row("/b", b"", None, 1, 0, 0),  # type: ignore[arg-type]
        Row(b"/b", b"", 0, 1, 0, 0),  # type: ignore[arg-type]
        Row(None, b"", 0, 1, 0, 0),  # type: ignore[arg-type]
    ],
)
def test_damaged_rows_are_no_tree(row: Row) -> None:
    good = [Row("/", b"", 0, 0, 0, 1), Row("/a", b"x", 3, 1, 7, 0)]
    check_rows(good, [5, 6])
    with pytest.raises(ValueError, match="damaged"):
        check_rows([*good, row])
    with pytest.raises(ValueError, match="damaged: a counter"):
        check_rows(good, [5, "6"])
