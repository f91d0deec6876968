"""Attributes of objects that are changed from outside, as figures: an object should change its state by its methods.

`python -m tests.support.structure` lists them and lowers their limits.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.words import trees

CHANGES = "attributes changed from outside"
MESSAGE_CHANGES = "fields of messages changed after their construction"

MESSAGES = "gregor.protocol.messages"
RETURNS_ARGUMENTS = ("collections", "functools", "heapq", "itertools", "operator", "random", "typing")
"""Modules whose functions return objects of their arguments: a result of theirs was not made there."""

ALLOWED_CHANGES = {
    "traffic.*": "counters of a partition without an invariant: a call for each would cost every produce and fetch",
    "offsets.high_watermark": "each produce request and each fetch of a follower sets it: a call would cost there",
    "offsets.log_end_offset": "each append sets it: a call would cost there",
    "_offsets.log_end_offset": "each append sets it: a call would cost there",
    "segment.size_bytes": "each append sets it: a call would cost there",
    "segment.max_timestamp": "each append sets it: a call would cost there",
    "segment.max_timestamp_offset": "each append sets it: a call would cost there",
    "segment.bytes_since_index_entry": "each append sets it: a call would cost there",
    "inbound.expects_long_frame": "each request that arrives sets it: a call would cost there",
    "receiver.end": "each read of a socket adds to it: a call would cost there",
    "session.epoch": "each fetch of a session counts there: a call would cost there",
    "wanted.last_sent_high_watermark": "each partition of each fetch sets it: a call would cost there",
    "wanted.last_sent_log_start_offset": "each partition of each fetch sets it: a call would cost there",
    "position.last_sent_high_watermark": "each partition of each fetch sets it: a call would cost there",
    "position.last_sent_log_start_offset": "each partition of each fetch sets it: a call would cost there",
    "route.meters": "produce requests of the fast path keep the meters of their client there",
    "made.outgoing": "the standard library makes the object, and has no argument for it",
    "error.filename": "an attribute of OSError, which the standard library fills in the same way",
    "system_call.argtypes": "ctypes has no other way to declare the arguments of a function",
    "fallocate.argtypes": "ctypes has no other way to declare the arguments of a function",
    "_kazoo.chroot": "kazoo reads it at each request, and its constructor needs the folder to exist",
    "_context.__DEFER_STEP_ERRORS__": "python-gssapi documents this switch, and has no other",
    "class_.__init__": "the classes of messages are made from the schema, their constructors at the first use",
    "init.*": "the compiler of messages gives a function that it has made its name and its defaults",
    "Versions.NONE": "a constant of a class that is one of its objects cannot be made in its body",
    "namespace.*": "an action of argparse has its results stored in this way",
}
"""Changes that may stay, as `owner.name`: the last name of the owner, and `*` for any name; each with its reason."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope = Function | ast.ClassDef | ast.Module


class Change(NamedTuple):
    """An attribute that is assigned, augmented or deleted, and whether its object is a message of the protocol."""

    target: ast.Attribute
    is_message: bool


class Names(NamedTuple):
    """The names of a module: of classes of messages and of functions that return them, and of foreign packages."""

    messages: frozenset[str]
    foreign: frozenset[str]


def outside_changes(tree: ast.Module) -> Iterator[Change]:
    """Yield each attribute that a module changes from outside: by an assignment (each of its targets), an augmented
    one, a loop, a `with` or `del`, where the attribute's object is not

    - `self` or `cls` themselves (`self.log.end = 1` changes the log from outside);
    - a local name that the same function assigns from a call of a class (a name with a capital, `cls`, `type`,
      `__new__`), so that its construction is not finished;
    - an object of a foreign package: a module of it, an argument with its class as annotation, or a local name that the
      function assigns from a call of its function.

    An object is a message where its first name is an argument annotated with a class of gregor.protocol.messages, or a
    local name that is assigned from one, from a call of a function of this module that returns one, or in a loop over
    a part of one.
    """
    names = _names(tree)
    pending: list[tuple[Scope, frozenset[str]]] = [(tree, frozenset())]
    while pending:
        scope, around = pending.pop()
        nodes = list(_nodes(scope))
        messages = _messages(scope, nodes, names, around)
        own = {"self", "cls"} | names.foreign | set(_foreign_arguments(scope, names)) | set(_constructed(nodes, names))
        for node in nodes:
            if isinstance(node, Scope):
                pending.append((node, messages))
                continue
            if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
                continue
            if not (isinstance(node.value, ast.Name) and node.value.id in own):
                yield Change(node, _first_name(node) in messages)


def _names(tree: ast.Module) -> Names:
    """Return the names of a module; an alias at its top (`_Answer = Response.Answer`) names a class of messages too."""
    messages, foreign = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = {(one.asname or one.name).partition(".")[0]: one.name for one in node.names}
            foreign |= {name for name, module in modules.items() if _is_foreign(module)}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported = {one.asname or one.name for one in node.names}
            messages |= imported if node.module == MESSAGES else set()
            foreign |= imported if _is_foreign(node.module) else set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and _first_name(node.value) in messages:
            messages |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    classes = frozenset(messages)
    messages |= {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.returns
        and _mentions(node.returns, classes)
    }
    return Names(frozenset(messages), frozenset(foreign))


def _is_foreign(module: str) -> bool:
    return module.partition(".")[0] not in ("gregor", "__future__", *RETURNS_ARGUMENTS)


def _nodes(scope: Scope) -> Iterator[ast.AST]:
    """Yield the nodes of a scope; of a scope inside, only itself."""
    pending: list[ast.AST] = [*ast.iter_child_nodes(scope)]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, Scope):
            pending += ast.iter_child_nodes(node)


def _arguments(scope: Scope) -> list[ast.arg]:
    if not isinstance(scope, Function):
        return []
    return [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]


def _foreign_arguments(scope: Scope, names: Names) -> Iterator[str]:
    for one in _arguments(scope):
        if isinstance(one.annotation, ast.Name | ast.Attribute) and _first_name(one.annotation) in names.foreign:
            yield one.arg


def _bindings(nodes: list[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target and the expression that it is assigned from, or loops over."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield node.target, node.iter
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield node.optional_vars, node.context_expr


def _constructed(nodes: list[ast.AST], names: Names) -> Iterator[str]:
    return (
        target.id
        for target, value in _bindings(nodes)
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and _constructs(value.func, names)
    )


def _constructs(function: ast.expr, names: Names) -> bool:
    name = ast.unparse(function).rpartition(".")[2]
    return (
        name.lstrip("_")[:1].isupper() or name in ("cls", "type", "__new__") or _first_name(function) in names.foreign
    )


def _messages(scope: Scope, nodes: list[ast.AST], names: Names, around: frozenset[str]) -> frozenset[str]:
    """Return the names of a scope that are messages, or parts or collections of messages."""
    found = around | {
        one.arg for one in _arguments(scope) if one.annotation is not None and _mentions(one.annotation, names.messages)
    }
    before = None
    while found != before:
        before = found
        found |= {
            one.id
            for target, value in _bindings(nodes)
            if _first_name(value) in found | names.messages or _own_function(value) in names.messages
            for one in ast.walk(target)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        }
    return found


def _own_function(value: ast.expr) -> str | None:
    """Return the method in `self.method(…)`, also behind `await`."""
    call = value.value if isinstance(value, ast.Await) else value
    is_own = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _first_name(call) == "self"
    return call.func.attr if is_own else None


def _mentions(annotation: ast.expr, classes: frozenset[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in classes for node in ast.walk(annotation))


def _first_name(node: ast.AST | None) -> str | None:
    """Return the name that an expression of attributes, calls and subscripts begins with: of `zip(a, b)` it is `a`."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("enumerate", "list", "zip")
        ):
            node = node.args[0] if node.args else None
        else:
            node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def allowance(change: Change) -> str | None:
    """Return the entry of ALLOWED_CHANGES that covers a change."""
    owner = ast.unparse(change.target.value).rpartition(".")[2]
    entries = (f"{owner}.{name}" for name in (change.target.attr, "*"))
    return next((entry for entry in entries if entry in ALLOWED_CHANGES), None)


@functools.cache
def _changes() -> list[tuple[str, Change]]:
    return [(path, change) for path, tree in trees() for change in outside_changes(tree)]


def changes_in_product(*, of_messages: bool) -> list[str]:
    """Return the changes of the product that are not allowed, as `path:line: owner.name`."""
    return [
        f"{path}:{change.target.lineno}: {ast.unparse(change.target)}"
        for path, change in _changes()
        if change.is_message is of_messages and allowance(change) is None
    ]


def needless_change_allowances() -> set[str]:
    """Return the entries of ALLOWED_CHANGES that cover nothing."""
    return set(ALLOWED_CHANGES) - {allowance(change) for _, change in _changes()}
