"""The pages for readers: their links, paths, commands, flags and make targets exist."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import shlex

import pytest

from gregor.broker.__main__ import COMMANDS, main
from tests.support.processes import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
MAX_README_LINES = 150
GENERATED = "(generated)"
"""In place of the file of a function that has none."""
WITH_SUB_COMMANDS = ("features", "spark", "transactions")
FOLDERS = "broker|config|coordinator|protocol|replication|spark_jobs|storage|tests|docs|\\.ci"

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PATH = re.compile(rf"(?:{FOLDERS})/[\w./-]*")

every_page = pytest.mark.parametrize("page", PAGES, ids=IDS)


def prose(page: pathlib.Path) -> str:
    """Return the text of a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def blocks(page: pathlib.Path, language: str) -> list[str]:
    return [body for name, body in _FENCE.findall(page.read_text()) if name == language]


def anchors(page: pathlib.Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def commands(page: pathlib.Path) -> list[str]:
    """Return the command lines of a page: lines of its shell blocks, split at pipes and `&&`, and code in its text."""
    lines = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    found = [part for line in lines for part in re.split(r"\||&&|\$\(", line.split("  #")[0])]
    found += _CODE.findall(prose(page))
    return [re.sub(r"^(?:[A-Z_]+=\S+ )+", "", part.strip()).rstrip(")") for part in found]


@functools.cache
def help_of(*words: str) -> str:
    """Return what a command of gregor prints for --help."""
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return printed.getvalue()


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


@every_page
def test_links_lead_to_pages_and_headings_that_exist(page: pathlib.Path) -> None:
    broken = []
    for link in _LINK.findall(prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, left = set(), [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    while left:
        page = left.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(prose(page)) if "://" not in link)
        left += [(page.parent / link).resolve() for link in links if link]
    assert set(PAGES) - reached == set()


@every_page
def test_paths_exist(page: pathlib.Path) -> None:
    paths = {code for code in _CODE.findall(prose(page)) if _PATH.fullmatch(code)}
    assert {path for path in paths if not (ROOT / path).exists()} == set()


@every_page
def test_commands_have_their_flags(page: pathlib.Path) -> None:
    unknown = []
    for line in commands(page):
        words = line.split() if line.count('"') % 2 or line.count("'") % 2 else shlex.split(line, comments=True)
        if words[:1] != ["gregor"] or len(words) == 1 or words[1] == "COMMAND":
            continue
        command = words[1]
        if command.startswith("-"):
            continue
        if command not in COMMANDS:
            unknown.append(line)
            continue
        below = words[2:3] if command in WITH_SUB_COMMANDS and words[2:] and words[2][0] != "-" else []
        text = help_of(command, *below)
        flags = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
        unknown += [f"{line}: {flag}" for flag in flags if not re.search(rf"{flag}(?![\w-])", text)]
    assert unknown == []


@every_page
def test_make_targets_and_modules_exist(page: pathlib.Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = []
    for line in commands(page):
        if made := re.match(r"make ([\w-]+)", line):
            missing += [line] if made[1] not in targets else []
        if run := re.match(r"python -m ([\w.]+)", line):
            path = ROOT / run[1].replace(".", "/")
            missing += [line] if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists() else []
    assert missing == []


@every_page
def test_python_of_a_page_is_python(page: pathlib.Path) -> None:
    for block in blocks(page, "python"):
        ast.parse(block)


def listed_functions(page: pathlib.Path) -> list[tuple[str, str]]:
    """Return function and file of each line of a page's lists of calls. A line without a file has that of the nearest
    line before it that is not deeper."""
    found: list[tuple[str, str]] = []
    for block in blocks(page, "text"):
        files: dict[int, str] = {}
        for numbered in block.splitlines():
            line = re.sub(r"^([ \d]\d) ", "   ", numbered)
            function, *path = line.split()
            depth = len(line) - len(line.lstrip())
            files = {other: file for other, file in files.items() if other <= depth}
            files[depth] = path[0] if path else files[max(files)]
            if files[depth] != GENERATED:
                found.append((function, files[depth]))
    return found


@functools.cache
def functions_of(path: pathlib.Path) -> set[str]:
    """Return the functions of a file, those of classes with their class."""
    tree = ast.parse(path.read_text())
    kinds = ast.FunctionDef, ast.AsyncFunctionDef
    found = {node.name for node in tree.body if isinstance(node, kinds)}
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        found |= {f"{owner.name}.{node.name}" for node in owner.body if isinstance(node, kinds)}
    return found


@pytest.mark.parametrize("page", ["produce", "fetch", "join", "transaction", "election", "recovery"])
def test_functions_of_a_journey_are_where_it_says(page: str) -> None:
    listed = listed_functions(ROOT / "docs" / "architecture" / f"{page}.md")
    assert len(listed) > 10
    files = {path for _, path in listed}
    assert {path for path in files if not (ROOT / path).is_file()} == set()
    assert [one for one in listed if one[0] not in functions_of(ROOT / one[1])] == []


def test_license_is_the_apache_license() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()


def test_tables_of_packages_and_rooms_are_complete() -> None:
    """A new package or room needs its line in the architecture page."""
    text = (ROOT / "docs" / "architecture" / "README.md").read_text()
    rooms = {
        f"{init.parent.relative_to(ROOT)}/"
        for package in ("broker", "config", "coordinator", "protocol", "replication", "spark_jobs", "storage")
        for init in (ROOT / package).glob("*/__init__.py")
    }
    assert {room for room in rooms if f"`{room}`" not in text} == set()
