"""Changes of gregor's code, pinned to what it does: a function's name and a piece of its syntax tree.

    Edit("replication", "elect", "if unclean: ANY_BODY", "if True: ANY_BODY")

A pattern is Python. A name that begins with ANY stands for any expression, and as a statement of its own for any
statements; in the new code it stands for what it stood for in the old. Where the function lies, how it is written and
what its neighbours do is of no matter.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ANY = "ANY"
MODULE = "<module>"
"""In a function's place: the statements outside of functions."""

Body = list[ast.stmt]
Captured = dict[str, "ast.expr | Body"]


class DoesNotApply(Exception):
    """The code has no such function, or what the pattern describes is not there as often as it should be."""


class Edit(NamedTuple):
    """`times`: how often the pattern is found in the functions of this name in this package."""

    package: str
    function: str
    find: str
    put: str
    times: int = 1


class Mutant(NamedTuple):
    """One mistake. It needs several edits where the code makes up for one alone."""

    name: str
    edits: tuple[Edit, ...]
    seed: int = 0
    """The first seed that is tried."""


def apply(edits: tuple[Edit, ...], root: Path) -> dict[Path, str]:
    """Return the new text of every file below `root` that changes. Raises DoesNotApply."""
    trees: dict[Path, ast.Module] = {}
    for edit in edits:
        found = 0
        for path in sorted((root / edit.package).rglob("*.py")):
            # Parsing the whole package would need a second.
            if (edit.find.split()[0] if edit.function == MODULE else f"def {edit.function}(") in _text(path):
                tree = trees.get(path) or ast.parse(_text(path))
                changed = sum(_replace(scope, edit) for scope in _scopes(tree, edit.function))
                if changed:
                    trees[path] = tree
                    found += changed
        if found != edit.times:
            raise DoesNotApply(
                f"{edit.find!r} is {found} times in functions {edit.function!r} of {edit.package}/, not {edit.times}"
            )
    return {path: ast.unparse(ast.fix_missing_locations(tree)) for path, tree in trees.items()}


@functools.cache
def _text(path: Path) -> str:
    return path.read_text()


def _scopes(tree: ast.Module, function: str) -> Iterator[ast.AST]:
    if function == MODULE:
        yield tree
        return
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and node.name == function:
            yield node


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _replace(scope: ast.AST, edit: Edit) -> int:
    """Change the scope in place; return how often."""
    find, put = ast.parse(edit.find).body, ast.parse(edit.put).body
    if isinstance(scope, ast.Module):
        return _replace_statements(scope.body, find, put)
    if len(find) == len(put) == 1 and isinstance(find[0], ast.Expr) and isinstance(put[0], ast.Expr):
        expressions = _Expressions(find[0].value, put[0].value)
        expressions.visit(scope)
        return expressions.count
    count = 0
    for node in list(ast.walk(scope)):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list):
                count += _replace_statements(body, find, put)
    return count


class _Expressions(ast.NodeTransformer):
    def __init__(self, find: ast.expr, put: ast.expr) -> None:
        self._find, self._put = find, put
        self.count = 0

    def visit(self, node: ast.AST) -> ast.AST:
        captured: Captured = {}
        if isinstance(node, ast.expr) and _matches(self._find, node, captured):
            self.count += 1
            return _Filled(captured).visit(_copy(self._put))
        return super().generic_visit(node)


def _replace_statements(body: Body, find: Body, put: Body) -> int:
    count, begin = 0, 0
    while begin + len(find) <= len(body):
        captured: Captured = {}
        end = begin + len(find)
        if all(_matches(one, other, captured) for one, other in zip(find, body[begin:end], strict=True)):
            new = _flat([_Filled(captured).visit(_copy(statement)) for statement in put])
            body[begin:end] = new
            begin += len(new)
            count += 1
        else:
            begin += 1
    return count


def _copy(node: ast.AST) -> ast.AST:
    return ast.parse(ast.unparse(node)).body[0] if isinstance(node, ast.stmt) else _expression(ast.unparse(node))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _flat(statements: list[object]) -> Body:
    return [one for some in statements for one in (some if isinstance(some, list) else [some])]


def _name_of(node: object) -> str | None:
    """Of a placeholder."""
    if isinstance(node, ast.Expr):
        node = node.value
    return node.id if isinstance(node, ast.Name) and node.id.startswith(ANY) else None


def _matches(pattern: object, node: object, captured: Captured) -> bool:
    if isinstance(pattern, ast.Expr) != isinstance(node, ast.Expr) and not isinstance(pattern, list):
        return False
    if isinstance(pattern, ast.expr) and isinstance(node, ast.expr) and (name := _name_of(pattern)) is not None:
        captured[name] = node
        return True
    if isinstance(pattern, list):
        if not isinstance(node, list):
            return False
        if len(pattern) == 1 and isinstance(pattern[0], ast.Expr) and (name := _name_of(pattern[0])) is not None:
            captured[name] = node
            return True
        return len(pattern) == len(node) and all(map(_matches, pattern, node, [captured] * len(node)))
    if isinstance(pattern, ast.AST):
        return type(pattern) is type(node) and all(
            _matches(getattr(pattern, field, None), getattr(node, field, None), captured)
            for field in pattern._fields
            if field not in ("ctx", "kind", "type_comment")
        )
    return pattern == node


class _Filled(ast.NodeTransformer):
    """Puts in for each placeholder what it stood for."""

    def __init__(self, captured: Captured) -> None:
        self._captured = captured

    def visit_Expr(self, node: ast.Expr) -> ast.AST | Body:
        found = self._captured.get(_name_of(node) or "")
        return found if isinstance(found, list) else super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self._captured.get(node.id)
        return found if isinstance(found, ast.expr) else node
