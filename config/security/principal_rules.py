"""``ssl.principal.mapping.rules`` (KIP-371): from the subject of a client's certificate to the name of its principal.

Rules are separated by commas: `DEFAULT`, or `RULE:pattern/replacement/` with `L` or `U` behind it for lower or upper
case. The first rule whose pattern fits the whole name decides. A slash in a pattern is written with a backslash.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gregor.config.definitions import ConfigError

KEY = "ssl.principal.mapping.rules"

_PART = r"(?:\\.|[^\\/])*"
_RULE = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<replacement>{_PART})/(?P<letters>[LU]?)|)\s*(?:,|$)"
)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class NoMatchingRule(Exception):
    """No rule fits the name of a client, which cannot be authenticated then."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None for `DEFAULT`."""
    replacement: str
    letters: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        # As in Java's replaceAll each match is replaced, not only the one of the whole name.
        result = self.pattern.sub(self._replaced, name)
        return result.lower() if self.letters == "L" else result.upper() if self.letters == "U" else result

    def _replaced(self, match: re.Match[str]) -> str:
        """Return the replacement of one match: `$12` is group 12, else group 1 and a 2, else the text itself."""

        def reference(found: re.Match[str]) -> str:
            if found[1] is not None:
                return found[1]
            digits = found[2]
            used = len(digits)
            while used > 1 and int(digits[:used]) > match.re.groups:
                used -= 1
            if int(digits[:used]) > match.re.groups:
                return found[0]
            return (match[int(digits[:used])] or "") + digits[used:]

        return _REFERENCE.sub(reference, self.replacement)


class PrincipalRules:
    """The rules of one listener. Raises ConfigError for a text that has others."""

    def __init__(self, text: str, prefix: str = "") -> None:
        self._rules: list[_Rule] = []
        position, text = 0, text.strip()
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None or found.end() == position:
                raise ConfigError(
                    prefix + KEY, text, f"must be DEFAULT or RULE:pattern/replacement/[LU] at {text[position:]!r}"
                )
            position = found.end()
            if found["default"]:
                self._rules.append(_Rule(None, "", ""))
            elif found["pattern"] is not None:
                try:
                    pattern = re.compile(found["pattern"])
                except re.error as error:
                    raise ConfigError(
                        prefix + KEY, text, f"{found['pattern']} is no regular expression: {error}"
                    ) from None
                self._rules.append(_Rule(pattern, found["replacement"], found["letters"]))
        self._text = text

    def name_of(self, subject: str) -> str:
        """Return the name of the principal for the subject of a certificate; raise NoMatchingRule."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of {KEY}={self._text} fits the subject {subject} of its certificate")
