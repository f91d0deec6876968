"""The rules that make the name of a principal from what a client authenticated with.

``ssl.principal.mapping.rules`` (KIP-371), for the subject of a certificate: rules are separated by commas, `DEFAULT`,
or `RULE:pattern/replacement/` with `L` or `U` behind it for lower or upper case. The first rule whose pattern fits the
whole name decides. A slash in a pattern is written with a backslash.

``sasl.kerberos.principal.to.local.rules`` (Kafka's KerberosRule), for a principal of Kerberos: `DEFAULT`, which fits
the principals of the default realm, or `RULE:[n:format](pattern)s/from/to/g/L`, of which all behind the format is
optional. It fits principals of n components, if the pattern fits the whole text of the format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gregor.config.definitions import ConfigError

KEY = "ssl.principal.mapping.rules"
KERBEROS_KEY = "sasl.kerberos.principal.to.local.rules"

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
        result = self.pattern.sub(lambda match: _replaced(match, self.replacement), name)
        return result.lower() if self.letters == "L" else result.upper() if self.letters == "U" else result


def _replaced(match: re.Match[str], replacement: str) -> str:
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

    return _REFERENCE.sub(reference, replacement)


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


_KERBEROS_RULE = re.compile(
    r"(?:(?P<default>DEFAULT)|RULE:\[(?P<components>[0-9]{1,9}):(?P<format>[^\]]*)\](?:\((?P<pattern>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?)/?(?P<lower>L)?"
)
_KERBEROS_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_PARAMETER = re.compile(r"\$([0-9]*)")
_NOT_SIMPLE = re.compile("[/@]")
_MAX_DIGITS = 9


class _KerberosRule(NamedTuple):
    text: str
    components: int | None
    """None for `DEFAULT`."""
    format: str
    pattern: re.Pattern[str] | None
    replaced: re.Pattern[str] | None
    replacement: str
    all: bool
    lower: bool

    def apply(self, parts: Sequence[str], default_realm: str) -> str | None:
        """Return the name of a principal with these parts, of which the realm is the first; None if the rule does not
        fit it. Raises NoMatchingRule where the rule fits and its result is no name."""
        if self.components is None:
            result = parts[1] if parts[0] == default_realm else None
        elif len(parts) - 1 == self.components:
            result = self._mapped(_PARAMETER.sub(lambda found: self._parameter(found[1], parts), self.format))
        else:
            result = None
        if result is None:
            return None
        if _NOT_SIMPLE.search(result):
            raise NoMatchingRule(f"the rule {self.text} of {KERBEROS_KEY} makes {result}, which has a / or @ still")
        return result.lower() if self.lower else result

    def _mapped(self, base: str) -> str | None:
        if self.pattern is not None and self.pattern.fullmatch(base) is None:
            return None
        if self.replaced is None:
            return base
        count = 0 if self.all else 1
        return self.replaced.sub(lambda match: _replaced(match, self.replacement), base, count=count)

    def _parameter(self, digits: str, parts: Sequence[str]) -> str:
        if not 0 < len(digits) <= _MAX_DIGITS or int(digits) >= len(parts):
            raise NoMatchingRule(
                f"the rule {self.text} of {KERBEROS_KEY} refers to ${digits}; there are $0 to ${len(parts) - 1}"
            )
        return parts[int(digits)]


class KerberosRules:
    """The rules of one listener for principals of Kerberos. Raises ConfigError, under `key`, for a text that is no
    rule."""

    def __init__(self, texts: Sequence[str], key: str = KERBEROS_KEY) -> None:
        self._rules = [_kerberos_rule(text, key) for text in texts]

    def name_of(self, principal: str, default_realm: str) -> str:
        """Return the name of the principal `service/host@REALM` or `user@REALM`; raise NoMatchingRule."""
        if "@" not in principal:
            return principal
        found = _KERBEROS_NAME.fullmatch(principal)
        if found is None:
            raise NoMatchingRule(f"{principal} is no name of Kerberos of one or two components with a realm")
        service, host, realm = found.groups()
        parts = (realm, service) if host is None else (realm, service, host)
        for rule in self._rules:
            name = rule.apply(parts, default_realm)
            if name is not None:
                return name
        rules = ",".join(rule.text for rule in self._rules)
        raise NoMatchingRule(
            f"no rule of {KERBEROS_KEY}={rules} fits {principal}; the default realm is {default_realm or 'not set'}"
        )


def _kerberos_rule(text: str, key: str) -> _KerberosRule:
    found = _KERBEROS_RULE.fullmatch(text)
    if found is None:
        raise ConfigError(key, text, "must be DEFAULT or RULE:[n:format](pattern)s/from/to/g/L")
    if found["default"]:
        return _KerberosRule(text, None, "", None, None, "", False, found["lower"] is not None)
    try:
        pattern, replaced = (None if found[name] is None else re.compile(found[name]) for name in ("pattern", "from"))
    except re.error as error:
        raise ConfigError(key, text, f"contains no regular expression: {error}") from None
    return _KerberosRule(
        text,
        int(found["components"]),
        found["format"],
        pattern,
        replaced,
        found["to"] or "",
        found["all"] is not None,
        found["lower"] is not None,
    )
