"""The structure of the code as figures: private attributes of other objects, long functions, large classes.

`python -m tests.support.structure` lists what it finds, and lowers the limits of the tests' private accesses and of
the changes of attributes from outside.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from tests.support.attribute_changes import CHANGES, MESSAGE_CHANGES, changes_in_product
from tests.support.limits import lower
from tests.support.words import trees, trees_of

MAX_FUNCTION_LINES = 60
MAX_CLASS_LINES = 400
"""Of a class and its bases together."""
PRIVATE_IN_TESTS = "private accesses in tests"
BY_NAME = ("setattr", "getattr", "delattr", "object")
"""Functions that have the name of an attribute as an argument; `object` is that of mock.patch."""

ALLOWED_NAMES = {
    "*._replace": "a documented method of named tuples",
    "*._asdict": "a documented method of named tuples",
    "*._make": "a documented method of named tuples",
    "*._fields": "a documented attribute of named tuples",
    "os._exit": "documented: ends a process without its exit handlers",
    "KafkaError.*": "the error codes of librdkafka: the client defines them with an underscore",
    "functools._lru_cache_wrapper": "the type that typeshed gives to a cached function",
    "client._call": "kazoo sends requests that it has no method for, as MultiRead, by nothing else",
    "SparkContext.*": "PySpark has no other way to the JVM that it started or has to start",
    "spark._jvm": "PySpark has no other way to the JVM that it started",
    "spark._jsc": "PySpark has no other way to Hadoop's configuration",
    "spark._jsparkSession": "Delta's and Iceberg's classes have the JVM's session as an argument",
    "*._2": "the second value of Scala's tuples",
}
"""Names with an underscore that may be used, as `owner.name`, `*` for any; each with its reason."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def allowance(access: ast.Attribute) -> str | None:
    """Return the entry of ALLOWED_NAMES that covers an access."""
    owner = ast.unparse(access.value)
    entries = (f"{one}.{name}" for one in (owner, "*") for name in (access.attr, "*"))
    return next((entry for entry in entries if entry in ALLOWED_NAMES), None)


def own_objects(class_: ast.ClassDef) -> set[str]:
    """Return the names by which a class has objects of its own: also `other`, and those of objects that it makes."""
    return {"self", "cls", "super()", "other", class_.name} | {
        target.id
        for node in ast.walk(class_)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name) and ast.unparse(node.value.func) in ("cls", class_.name)
    }


def foreign_accesses(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield each access to an attribute with an underscore, but for those of a class to objects of its own."""
    pending: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while pending:
        node, own = pending.pop()
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and ast.unparse(node.value) not in own:
            yield node
        inside = own | own_objects(node) if isinstance(node, ast.ClassDef) else own
        pending += [(child, inside) for child in reversed([*ast.iter_child_nodes(node)])]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_accesses(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield each access to a private attribute of another object."""
    return (access for access in foreign_accesses(tree) if allowance(access) is None)


def private_imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each private name that is imported from a module of the product."""
    return (
        (node.lineno, f"{node.module}.{alias.name}")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gregor.")
        for alias in node.names
        if _is_private(alias.name)
    )


def private_replacements(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each call that sets, reads or deletes a private attribute by its name, as
    `monkeypatch.setattr(log, "_end", 1)` does; of a name that depends on a condition, once for each."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] not in BY_NAME:
            continue
        # The first two are an object and a name, or a path and a value.
        parts = [[one.body, one.orelse] if isinstance(one, ast.IfExp) else [one] for one in node.args[:2]]
        for constant in itertools.chain.from_iterable(parts):
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                name = constant.value.rpartition(".")[2]
                if _is_private(name) and name.isidentifier():
                    yield node.lineno, f"{ast.unparse(node.args[0])}, {constant.value}"


def private_in_product() -> list[str]:
    """Return the private accesses and imports of the product, as `path: access`."""
    return sorted(
        f"{path}: {one}"
        for path, tree in trees()
        for one in (*map(ast.unparse, private_accesses(tree)), *(name for _, name in private_imports(tree)))
    )


def private_in_tests() -> list[str]:
    """Return the private accesses and imports of the tests, and their replacements, as `path:line: access`."""
    return [
        f"{path}:{line}: {text}"
        for path, tree in trees_of("tests")
        for line, text in (
            *((one.lineno, ast.unparse(one)) for one in private_accesses(tree)),
            *private_imports(tree),
            *private_replacements(tree),
        )
    ]


def needless_allowances() -> set[str]:
    """Return the entries of ALLOWED_NAMES that cover nothing."""
    return set(ALLOWED_NAMES) - {
        allowance(one) for _, tree in [*trees(), *trees_of("tests")] for one in foreign_accesses(tree)
    }


def long_functions() -> dict[str, int]:
    """Return the functions of the product above MAX_FUNCTION_LINES, as `path: name`, with their lines."""
    return {
        f"{path}: {node.name}": _lines(node)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, Function) and _lines(node) > MAX_FUNCTION_LINES
    }


def large_classes() -> dict[str, int]:
    """Return the classes of the product above MAX_CLASS_LINES with their bases, as `path: name`, with these lines."""
    return {f"{path}: {name}": lines for (path, name), lines in class_lines(trees()).items() if lines > MAX_CLASS_LINES}


def class_lines(modules: list[tuple[str, ast.Module]]) -> dict[tuple[str, str], int]:
    """Return the lines of each class at the top of a module, and of those of its bases that are in `modules`."""
    classes = {
        (path, node.name): node for path, tree in modules for node in tree.body if isinstance(node, ast.ClassDef)
    }
    imported = {path: _imported(tree) for path, tree in modules}

    def with_bases(key: tuple[str, str]) -> set[tuple[str, str]]:
        path, _ = key
        found = {key}
        for base in classes[key].bases:
            name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
            base_key = imported[path].get(name, (path, name))
            if base_key in classes:
                found |= with_bases(base_key)
        return found

    return {key: sum(_lines(classes[one]) for one in with_bases(key)) for key in classes}


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Return path and name of each name that a module imports from the product."""
    return {
        alias.asname or alias.name: (f"{node.module.removeprefix('gregor.').replace('.', '/')}.py", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _lines(node: Function | ast.ClassDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


if __name__ == "__main__":
    changes, message_changes = changes_in_product(of_messages=False), changes_in_product(of_messages=True)
    print(*private_in_product(), *private_in_tests(), long_functions(), large_classes(), sep="\n")
    print(f"{CHANGES}:", *changes, f"{MESSAGE_CHANGES}:", *message_changes, sep="\n")
    lower(
        {
            PRIVATE_IN_TESTS: len(private_in_tests()),
            CHANGES: len(changes),
            MESSAGE_CHANGES: len(message_changes),
        }
    )
