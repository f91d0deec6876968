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
    *("silence", "silences", "hand_over", "handed_over", "handing_over", "hands_over", "late", "waiter", "waiters"),
    *("outlook", "outlooks", "garbage", "stall", "stalls", "stalled", "stalling", "store_choice", "store_choices"),
    *("together", "local_broker", "local_brokers", "topic_request", "topic_requests", "cut", "cuts", "cutting"),
    *("isr_change", "isr_changes", "isr_proposed", "isr_proposal", "isr_proposals", "proposal", "proposals", "closest"),
    *("leader_balance", "picture", "pictures", "place", "placed", "places", "placing", "doom", "doomed", "filthiest"),
    *("owe", "owed", "owes", "owing", "pay", "paid", "paying", "pays", "debtor", "debtors"),
    *("settle", "settled", "settles", "settling", "take", "taken", "takes", "taking", "took", "inert"),
    *("ask", "asked", "asking", "asks", "look", "looked", "looking", "looks"),
    *("go_on", "goes_on", "going_on", "went_on", "tell", "telling", "tells", "told"),
    *("hear", "heard", "hearing", "hears", "say", "said", "saying", "says"),
    *("whoever", "nobody", "somebody", "anybody", "for_ever", "so_long", "mend", "mended", "mending", "mends"),
)
"""In identifiers: whole parts of a name, as `cut` in `cut_back`, `_cut` and `CutBack`."""
IDIOMS = ("take_offline", "take_snapshot", "look_up", "lookup", "isr_change_prefix", "isr_change_notifications")
"""Set phrases of plain English, and the names of ZooKeeper's nodes in Apache Kafka."""
AS_PREFIXES = ("MOST_", "LEAST_")
"""Constants that name a limit by the wrong word."""

IN_TEXTS = (
    *("silence", "hand(s|ed|ing)? over", "waiters?", "outlook", "garbage(?! collect)", "stall(s|ed|ing)?"),
    *("store choice", "local broker", "late partitions?", "(cuts?|cutting) (logs?|off|back|short)", "closest replica"),
    *("leader balance", "picture", "isr (proposals?|changes?)", "topic requests?", "plac(e|ed|es|ing)", "doomed"),
    *("filthiest", "owe[sd]?", "owing", "debtors?", "pay(s|ing)?", "paid", "settle[sd]?", "settling", "inert"),
    *("tak(e|en|es|ing)", "took", "ask(s|ed|ing)?", "look(s|ed|ing)?", "tell(s|ing)?", "told", "hear(d|s|ing)?"),
    *("say(s|ing)?", "said", "goes? on", "going on", "went on", "mend(s|ed|ing)?", "whoever", "nobody", "somebody"),
    *("anybody", "for ever", "so long", "left aside"),
)
"""In texts that users can see, messages and documents: regular expressions, matched as whole words."""
ALLOWED_TEXTS = {
    ("broker/admin_socket/server.py", "stalls"): "a command of the admin socket: tools of users send it",
    ("broker/jobs/loop_lag.py", "stalls"): "a logger's name: users set its level by it",
    ("broker/metrics/lag/status.py", "stalled"): "the label of a status: monitoring compares with it",
    ("spark_jobs/jobs/statement.py", "paid"): "a column in an example about payments",
    ("spark_jobs/jobs/two_topics.py", "paid"): "a column and a topic in an example about payments",
}
"""Words of IN_TEXTS that stay in a module, each with its reason."""
DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md"),
    *("config/**/*.tsv", "config/**/*.properties", "docs/*.service"),
)
"""Files whose text users read; `gregor configs --describe` has the help texts of the tables."""
LIST_OF_REPLACED_WORDS = "## Use this instead"
"""The heading of the part of docs/glossary.md that must contain them."""

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
    """Yield line and text of each string that is no docstring, and of the help of click commands."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.lineno, node.value
        elif isinstance(node, ast.FunctionDef) and any("command" in ast.unparse(one) for one in node.decorator_list):
            yield node.lineno, ast.get_docstring(node) or ""


def in_text(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 0, and the words of each replaced word of a text."""
    for match in _IN_TEXTS.finditer(text):
        yield text.count("\n", 0, match.start()), " ".join(match[0].split())


_IN_TEXTS = re.compile(rf"\b(?:{'|'.join(IN_TEXTS)})\b".replace(" ", r"\s+"), re.IGNORECASE)


@functools.cache
def banned_texts() -> dict[tuple[str, str], list[int]]:
    """Return by path and word the lines of the product's texts that contain a replaced word."""
    found: dict[tuple[str, str], list[int]] = {}
    for path, tree in trees():
        for line, text in texts(tree):
            for _, word in in_text(text):
                found.setdefault((path, word.lower()), []).append(line)
    return found


def prose(document: str) -> str:
    """Return a document without its code, in blocks and between backticks, in as many lines."""
    return re.sub(
        r"^[ ]*```.*?^[ ]*```|`[^`]*`",
        lambda code: "\n" * code[0].count("\n"),
        document,
        flags=re.MULTILINE | re.DOTALL,
    )


def echoed(makefile: str) -> str:
    """Return the texts that the commands of a makefile print, in as many lines."""
    return "\n".join(
        " ".join(single or double for single, double in re.findall(r"\becho (?:'([^']*)'|\"([^\"]*)\")", line))
        for line in makefile.split("\n")
    )


def banned_in_documents() -> list[str]:
    """Return place and words of every replaced word in the documents, and in what `make` prints."""
    texts_by_path = {
        path: prose(path.read_text().partition(LIST_OF_REPLACED_WORDS)[0])
        for pattern in DOCUMENTS
        for path in sorted(ROOT.glob(pattern))
    }
    texts_by_path[ROOT / "Makefile"] = echoed((ROOT / "Makefile").read_text())
    return [
        f"{path.relative_to(ROOT)}:{line + 1}: {word}"
        for path, text in texts_by_path.items()
        for line, word in in_text(text)
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
