"""Regular expressions of topic names, which members subscribe to, by RE2 (KIP-848).

RE2 has no backtracking: the time of a match is linear in the length of a name, whatever a client sends. An expression
must match the whole name. Kafka: ResolvedRegularExpression and GroupMetadataManager.refreshRegularExpressions, by RE2J.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.protocol.turns import Steps

MAX_EXPRESSION_CHARACTERS = 10_000
MAX_MEMORY_BYTES = 1 << 20
"""The memory of a compiled expression and of its states; with it the worst expression needs 2 ms for a long name."""

Matches = Callable[[str], object]
"""Return a value that is true if a name matches."""


def compile_expression(expression: str) -> Matches:
    """Return the function that matches a name. Raises KafkaError for a text that is no regular expression."""
    import re2  # few groups subscribe by expression: others pay neither its memory nor its time to load

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex has {len(expression)} characters; at most {MAX_EXPRESSION_CHARACTERS} are allowed",
        )
    try:
        matches: Matches = re2.compile(expression, options).fullmatch
    except (re2.error, UnicodeEncodeError) as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex {expression!r} is not a valid regular expression of RE2: {_reason(error)}",
        ) from error
    return matches


def matching(expressions: Iterable[str], names: Collection[str]) -> Steps[dict[str, frozenset[str]]]:
    """Return the names that each expression matches. One that is not valid matches none."""
    matched: dict[str, frozenset[str]] = {}
    present = tuple(names)
    for expression in expressions:
        found: list[str] = []
        with suppress(KafkaError):
            matches = compile_expression(expression)
            yield None
            for name in present:
                if matches(name):
                    found.append(name)
                yield None
        matched[expression] = frozenset(found)
    return matched


def _reason(error: Exception) -> str:
    text = error.args[0] if error.args else error
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
