"""Changes by pattern, of made-up code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.edits import MODULE, DoesNotApply, Edit, apply

CODE = """
LIMIT_MS = 30

class Elections:
    def elect(self, unclean):
        if unclean:  # a comment
            self._say("unclean")
            return self.first(1)
        self._say("clean")
        for one in self.all:
            try:
                self.reach(one)
            except (OSError, ValueError) as error:
                self._say(f"{error}")
                return None
        return one.epoch + 1, one.isr

async def elect(self):
    await self.registered.wait()
"""


def edited(tmp_path: Path, *edits: Edit) -> str:
    path = tmp_path / "replication" / "room" / "module.py"
    path.parent.mkdir(parents=True)
    path.write_text(CODE)
    (text,) = apply(edits, tmp_path).values()
    compile(text, "module.py", "exec")
    return text


@pytest.mark.parametrize(
    ("find", "put", "gone", "there"),
    [
        ("if unclean: ANY_BODY", "if True: ANY_BODY", "if unclean", "if True:\n            self._say('unclean')"),
        ("self._say('clean')", "pass", "self._say('clean')", "pass\n"),
        ("one.epoch + 1", "one.epoch", "one.epoch + 1", "return (one.epoch, one.isr)"),
        ("ANY_1, one.isr", "one.isr, ANY_1", "one.epoch + 1, one.isr", "return (one.isr, one.epoch + 1)"),
        ("ANY.first(1)", "ANY.last()", "self.first(1)", "return self.last()"),
        ("await self.registered.wait()", "pass", "await", "pass"),
        (
            "try: ANY_WORK\nexcept (OSError, ValueError) as error: ANY_REST",
            "try: ANY_WORK\nexcept OSError as error:\n  ANY_WORK\n  raise",
            "ValueError",
            "except OSError as error:\n                self.reach(one)\n                raise",
        ),
        ("self._say('unclean')\nreturn self.first(1)", "return None", "unclean'", "return None"),
    ],
)
def test_what_is_found_is_replaced(tmp_path: Path, find: str, put: str, gone: str, there: str) -> None:
    text = edited(tmp_path, Edit("replication", "elect", find, put))
    assert gone not in text
    assert there in text


def test_statements_outside_of_functions(tmp_path: Path) -> None:
    assert "LIMIT_MS = 0\n" in edited(tmp_path, Edit("replication", MODULE, "LIMIT_MS = ANY", "LIMIT_MS = 0"))


def test_several_edits_of_a_file_go_together(tmp_path: Path) -> None:
    text = edited(
        tmp_path,
        Edit("replication", "elect", "one.epoch + 1", "one.epoch"),
        Edit("replication", "elect", "self._say(ANY)", "self._mumble(ANY)", times=3),
    )
    assert "return (one.epoch, one.isr)" in text
    assert text.count("_mumble") == 3


@pytest.mark.parametrize(
    "edit",
    [
        Edit("replication", "elect", "self._say(ANY)", "pass"),
        Edit("replication", "elect", "self._shout(ANY)", "pass"),
        Edit("replication", "elect_all", "self._say('clean')", "pass"),
        Edit("storage", "elect", "self._say('clean')", "pass"),
        Edit("replication", "elect", "self._say('clean')", "pass", times=2),
    ],
)
def test_what_is_not_there_as_often_as_it_should_be_is_named(tmp_path: Path, edit: Edit) -> None:
    with pytest.raises(DoesNotApply, match=rf"in functions '{edit.function}' of {edit.package}/, not {edit.times}"):
        edited(tmp_path, edit)
