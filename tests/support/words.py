"""The words that docs/glossary.md replaces, and where the code still has them.

`python -m tests.support.words` lowers the limits of comments and docstrings in tests/limits.tsv; it raises none.
"""

from __future__ import annotations

import ast
import functools
import io
import itertools
import re
import tokenize
from collections.abc import Iterator

from tests.support.limits import lower
from tests.support.processes import ROOT

PACKAGES = ("broker", "config", "coordinator", "protocol", "replication", "spark_jobs", "storage")

IN_NAMES = (
    *("silence", "hand_over", "handing_over", "hands_over", "late", "waiter", "waiters", "outlook", "garbage"),
    *("stall", "stalls", "stalled", "store_choice", "together", "local_broker", "topic_requests", "cut", "cuts"),
    *("isr_changes", "isr_proposed", "proposals", "closest", "leader_balance", "picture", "told", "place", "doom"),
    *("doomed", "filthiest", "owe", "owed", "owes", "pay", "pays", "paid", "debtor", "settle", "settled", "settles"),
    *(
        "take",
        "takes",
        "taken",
        "ask",
        "asks",
        "asked",
        "look",
        "looks",
        "looking",
        "go_on",
        "goes_on",
        "tell",
        "tells",
    ),
    *("hear", "hears", "heard", "say", "says", "said", "inert", "whoever", "nobody", "somebody", "anybody"),
    *("for_ever", "so_long", "mend", "mends"),
)
"""In identifiers: whole parts of a name, as `cut` in `cut_back`, `_cut` and `CutBack`."""
IDIOMS = ("take_offline", "take_snapshot", "look_up", "lookup")
"""Set phrases of plain English."""
AS_PREFIXES = ("MOST_", "LEAST_")
"""Constants that name a limit by the wrong word."""

IN_TEXTS = (
    *("silence", "hand(s|ed|ing)? over", "waiters?", "outlook", "garbage", "stall(s|ed)?", "store choice"),
    *("local broker", "late partitions?", "cut (logs?|off|back)", "closest replica", "leader balance", "picture"),
    *("told", "doomed", "filthiest", "owe[sd]?", "debtor", "settle[sd]?", "goes? on", "going on", "go on", "hear[sd]?"),
    *("mend(s|ed)?", "whoever", "nobody", "somebody", "anybody", "for ever", "so long", "inert", "left aside"),
)
"""In texts that users can see: regular expressions, matched as whole words."""

IN_NOTES = {
    # A question word for a person or thing at the start of a sentence.
    "openings": re.compile(r"(?:^|[.:] )(?:What|Whatever|Who|Whoever|Whom|Whose)\b"),
    "phrases": re.compile(
        r"\b(?:for ever|so long|whoever|nobody|somebody|anybody|go(?:es)? on|went on|going on|hear[sd]?)\b",
        re.IGNORECASE,
    ),
    "verbs": re.compile(
        r"\b(?:ask(?:s|ed|ing)?|take[ns]?|taking|took|tell(?:s|ing)?|told|look(?:s|ed|ing)?|say(?:s|ing)?|said)\b",
        re.IGNORECASE,
    ),
}
"""In comments and docstrings: regular expressions, each with a limit in every package."""


@functools.cache
def trees_of(package: str) -> list[tuple[str, ast.Module]]:
    """Return the path and the syntax tree of each module of a package, or of `tests`."""
    paths = sorted((ROOT / package).rglob("*.py"))
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in paths]


def trees() -> list[tuple[str, ast.Module]]:
    """Return the path and the syntax tree of each module of the product."""
    return [one for package in PACKAGES for one in trees_of(package)]


def parts(name: str) -> str:
    """Return a name as lower-case words between underscores: `_TakeBack` is `_take_back_`."""
    return f"_{re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', name).lower().strip('_')}_"


def banned_in(name: str) -> list[str]:
    """Return the replaced words that an identifier contains."""
    apart = parts(name)
    for idiom in IDIOMS:
        apart = apart.replace(f"_{idiom}_", "_")
    found = [word for word in IN_NAMES if f"_{word}_" in apart]
    return found + [prefix for prefix in AS_PREFIXES if name.lstrip("_").startswith(prefix)]


def defined_names(path: str, tree: ast.Module) -> set[str]:
    """Return the names that a module defines: its own, those of functions, classes, arguments and attributes."""
    names = {path.rpartition("/")[2].removesuffix(".py")}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


@functools.cache
def banned_names() -> frozenset[str]:
    """Return `word name` for every identifier of the product that contains a replaced word."""
    names = set().union(*(defined_names(path, tree) for path, tree in trees()))
    return frozenset(f"{word} {name}" for name in names for word in banned_in(name))


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string of several words that is no docstring, and of the help of click commands."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            if " " in node.value.strip():
                yield node.lineno, node.value
        elif isinstance(node, ast.FunctionDef) and any("command" in ast.unparse(one) for one in node.decorator_list):
            yield node.lineno, ast.get_docstring(node) or ""


def banned_texts() -> list[str]:
    """Return place and words of every text of the product that contains a replaced word."""
    pattern = re.compile(rf"\b(?:{'|'.join(IN_TEXTS)})\b", re.IGNORECASE)
    return [
        f"{path}:{line}: {match[0]}"
        for path, tree in trees()
        for line, text in texts(tree)
        for match in pattern.finditer(re.sub(r"\s+", " ", text))
    ]


def notes(source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring, and of each comment; the lines of one comment are one text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(node.value.value.split())
    comments = [one for one in tokenize.generate_tokens(io.StringIO(source).readline) if one.type == tokenize.COMMENT]
    # Adjacent lines have the same difference to their index; a comment behind code stands alone.
    groups = itertools.groupby(
        enumerate(comments),
        key=lambda item: (item[1].start[0] - item[0], item[1].start if item[1].line[: item[1].start[1]].strip() else 0),
    )
    for _, group in groups:
        lines = [comment for _, comment in group]
        yield lines[0].start[0], " ".join(line.string.lstrip("#: ").strip() for line in lines)


def banned_notes() -> dict[str, list[str]]:
    """Return by kind and package the places of openings, phrases and verbs of IN_NOTES."""
    found: dict[str, list[str]] = {}
    for package, (kind, pattern) in itertools.product((*PACKAGES, "tests"), IN_NOTES.items()):
        found[f"{kind} in {package}"] = [
            f"{path}:{line}: {match[0].strip(' .:')}"
            for path, notes_of_module in _notes_of(package)
            for line, text in notes_of_module
            for match in pattern.finditer(text)
        ]
    return found


@functools.cache
def _notes_of(package: str) -> list[tuple[str, list[tuple[int, str]]]]:
    return [(path, list(notes((ROOT / path).read_text(), tree))) for path, tree in trees_of(package)]


if __name__ == "__main__":
    lower({name: len(places) for name, places in banned_notes().items()})
