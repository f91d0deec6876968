"""The structure of the code: objects keep their private attributes to themselves, functions and classes are small."""

from __future__ import annotations

import ast
import textwrap

import pytest

from tests.support.attribute_changes import (
    CHANGES,
    MESSAGE_CHANGES,
    changes_in_product,
    needless_change_allowances,
    outside_changes,
)
from tests.support.limits import limits
from tests.support.structure import (
    PRIVATE_IN_TESTS,
    class_lines,
    large_classes,
    long_functions,
    needless_allowances,
    private_accesses,
    private_imports,
    private_in_product,
    private_in_tests,
    private_replacements,
)

pytestmark = pytest.mark.slow


def _changed(text: str) -> list[str]:
    return sorted(
        f"{ast.unparse(one.target)}{' of a message' if one.is_message else ''}"
        for one in outside_changes(ast.parse(textwrap.dedent(text)))
    )


def _private(text: str) -> list[str]:
    return [ast.unparse(access) for access in private_accesses(ast.parse(textwrap.dedent(text)))]


def test_no_product_code_uses_a_private_attribute_of_another_object() -> None:
    assert private_in_product() == []


def test_tests_use_no_more_private_attributes_than_before() -> None:
    """`python -m tests.support.structure` lists them, and lowers the limit."""
    assert len(private_in_tests()) <= limits()[PRIVATE_IN_TESTS]


def test_no_private_name_is_allowed_that_is_not_used() -> None:
    assert needless_allowances() == set()


def test_no_more_attributes_are_changed_from_outside_than_before() -> None:
    """`python -m tests.support.structure` lists them, and lowers the limits."""
    assert len(changes_in_product(of_messages=False)) <= limits()[CHANGES]
    assert len(changes_in_product(of_messages=True)) <= limits()[MESSAGE_CHANGES]


def test_no_change_is_allowed_that_is_not_made() -> None:
    assert needless_change_allowances() == set()


def test_no_function_is_too_long() -> None:
    assert long_functions() == {}


def test_no_class_is_too_large_with_its_bases() -> None:
    assert large_classes() == {}


def test_private_attributes_of_other_objects_are_found() -> None:
    assert _private("log._segments\nself.log._end") == ["log._segments", "self.log._end"]
    assert _private("log.segments, log.__class__, one._replace(a=1), os._exit(1)") == []


def test_imports_of_private_names_are_found() -> None:
    tree = ast.parse(
        "from gregor.storage.log import _end, Log\nfrom sys import _getframe\nfrom gregor import __version__"
    )
    assert [*private_imports(tree)] == [(1, "gregor.storage.log._end")]


def test_private_attributes_that_are_replaced_by_their_names_are_found() -> None:
    tree = ast.parse(
        'monkeypatch.setattr(log, "_end" if a else "_start", "_value")\n'
        'setattr(log, "end", one._replace(a=1)), patch.setattr("gregor.log._MAX", 1), getattr(log, f"_{end}", "_c")'
    )
    assert [*private_replacements(tree)] == [
        (1, "log, _end"),
        (1, "log, _start"),
        (2, "'gregor.log._MAX', gregor.log._MAX"),
    ]


def test_class_may_use_private_attributes_of_its_own_objects() -> None:
    text = """
        class Log:
            def __eq__(self, other):
                return self._end == other._end and super()._end and Log._END
            @classmethod
            def load(cls):
                log = cls()
                log._end = 1
                return log
        log._end
    """
    assert _private(text) == ["log._end"]


def test_lines_of_a_class_include_its_bases_in_other_modules() -> None:
    base = ast.parse("class Base:\n    a = 1\n    b = 2\n")
    derived = ast.parse(
        "from gregor.a.base import Base\nclass Middle(Base[int]): ...\nclass Both(Middle, Base):\n    c = 3\n"
    )
    lines = class_lines([("a/base.py", base), ("a/derived.py", derived)])
    assert lines == {("a/base.py", "Base"): 3, ("a/derived.py", "Middle"): 4, ("a/derived.py", "Both"): 6}


def test_changes_of_attributes_from_outside_are_found() -> None:
    text = """
        def f(self, log):
            self.end = 1
            self.log.end, log.start = 1, 2
            log.size += 1
            del log.name
            for log.item in (): ...
            with log: log.inside = lambda: setattr(log, "end", 1)
    """
    assert _changed(text) == ["log.inside", "log.item", "log.name", "log.size", "log.start", "self.log.end"]


def test_objects_that_the_function_has_constructed_may_be_changed_by_it() -> None:
    text = """
        def f(cls, log):
            made, loaded = Log(), cls.load()
            made.end = 1
            one = Log()
            one.end = 1
            two = cls.__new__(cls)
            two.end = 1
            def g():
                one.end = 2
    """
    assert _changed(text) == ["made.end", "one.end"]


def test_objects_of_foreign_packages_may_be_changed() -> None:
    text = """
        import ssl, sys
        from gregor.storage.log.log import Log
        def f(context: ssl.SSLContext, log: Log):
            sys.excepthook = context.verify_mode = log.end = 1
            other = ssl.create_default_context()
            other.verify_mode = 1
    """
    assert _changed(text) == ["log.end"]


def test_changes_of_messages_are_listed_separately() -> None:
    text = """
        from gregor.protocol.messages import FetchRequest, FetchResponse
        Data = FetchResponse.PartitionData
        def f(self, request: FetchRequest, found: dict[int, Data], log):
            for topic in request.topics:
                for part in topic.partitions:
                    part.offset = log.end = 1
            found[1].size = 1
            answer = self.answer()
            answer.size = 1
        def answer(self) -> FetchResponse: ...
    """
    assert _changed(text) == [
        "answer.size of a message",
        "found[1].size of a message",
        "log.end",
        "part.offset of a message",
    ]
