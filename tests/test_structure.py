"""The structure of the code: objects keep their private attributes to themselves, functions and classes are small."""

from __future__ import annotations

import ast
import textwrap

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
)

LONG_FUNCTIONS = {
    "storage/log/append.py: append_as_leader": "each batch passes it, and each call less counts there",
}


def _private(text: str) -> list[str]:
    return [ast.unparse(access) for access in private_accesses(ast.parse(textwrap.dedent(text)))]


def test_no_product_code_uses_a_private_attribute_of_another_object() -> None:
    assert private_in_product() == []


def test_tests_use_no_more_private_attributes_than_before() -> None:
    """`python -m tests.support.structure` lists them, and lowers the limit."""
    assert len(private_in_tests()) <= limits()[PRIVATE_IN_TESTS]


def test_no_private_name_is_allowed_that_is_not_used() -> None:
    assert needless_allowances() == set()


def test_no_function_is_too_long() -> None:
    assert long_functions().keys() == LONG_FUNCTIONS.keys()


def test_no_class_is_too_large_with_its_bases() -> None:
    assert large_classes() == {}


def test_private_attributes_of_other_objects_are_found() -> None:
    assert _private("log._segments\nself.log._end") == ["log._segments", "self.log._end"]
    assert _private("log.segments, log.__class__, one._replace(a=1), os._exit(1)") == []


def test_imports_of_private_names_are_found() -> None:
    tree = ast.parse(
        "from gregor.storage.log import _end, Log\nfrom sys import _getframe\nfrom gregor import __version__"
    )
    assert [*private_imports(tree)] == ["gregor.storage.log._end"]


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
