"""JAAS strings, as `sasl.jaas.config` has them: `<login module> <control flag> (<option>=<value>)*;`

The tokens are those of Kafka's JaasConfig, which Java's StreamTokenizer makes: words end at white space, quotes, `=`,
`;` and `/`; `/` begins a comment; quoted texts know Java's escapes and end with their line at the latest. Of the login
modules, that of Kerberos has options with meanings of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

KERBEROS_MODULE = "Krb5LoginModule"
CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_QUOTES = "\"'"
_ENDS_OF_WORDS = frozenset("=;/" + _QUOTES)
_LINE_ENDS = "\r\n"


class JaasError(ValueError):
    """A JAAS string is malformed. The message never contains a part of a value, which may be a secret."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module. Its options may be secrets and are not in its `repr`."""

    login_module: str
    control_flag: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def module_name(self) -> str:
        """The name of the login module without its package."""
        return self.login_module.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """The options of Java's Krb5LoginModule. Others, such as `storeKey`, `doNotPrompt` and `debug`, have no effect."""

    principal: str = ""
    """The identity, such as kafka/host@REALM; empty: that of the ticket cache. `*` stands for all keys of the file."""
    keytab: str = ""
    """The file with its key; empty: a ticket is used that another program has put into the ticket cache."""
    ticket_cache: str = ""
    """The file with tickets, or a name that the Kerberos library knows; empty: the library's default."""
    service_name: str = ""
    """Kafka's own option, which `sasl.kerberos.service.name` replaces."""

    @classmethod
    def of(cls, entry: JaasEntry) -> KerberosLogin:
        """Raises JaasError."""
        options = entry.options
        if entry.module_name != KERBEROS_MODULE:
            raise JaasError(f"names {entry.login_module}; GSSAPI needs com.sun.security.auth.module.{KERBEROS_MODULE}")
        with_keytab, with_cache = (options.get(key, "").lower() == "true" for key in ("useKeyTab", "useTicketCache"))
        found = cls(
            options.get("principal", ""),
            _path(options.get("keyTab", "")) if with_keytab else "",
            _path(options.get("ticketCache", "")) if with_cache else "",
            options.get("serviceName", ""),
        )
        if with_keytab and not (found.keytab and found.principal):
            raise JaasError(f"{KERBEROS_MODULE} with useKeyTab=true needs the options keyTab and principal")
        if not with_keytab and not with_cache:
            raise JaasError(
                f"{KERBEROS_MODULE} needs useKeyTab=true with keyTab and principal, or for clients useTicketCache=true"
            )
        return found


def _path(text: str) -> str:
    """Return the name of a file without the prefix that Java's module permits."""
    return text[len("file:") :] if text[:5].lower() == "file:" else text


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_text: bool
    """A word or a quoted text; else `text` is a sign."""


def parse_jaas(text: str) -> list[JaasEntry]:
    """Return the entries of a JAAS string, one at least. Raises JaasError."""
    tokens = _tokens(text)
    entries = []
    for first in tokens:
        entries.append(_entry(first, tokens))
    if not entries:
        raise JaasError("no login module is named")
    return entries


def _entry(first: _Token, tokens: Iterator[_Token]) -> JaasEntry:
    flag = next(tokens, None)
    if not first.is_text:
        raise JaasError(f"a login module is expected, not {first.text}")
    if flag is None or not flag.is_text:
        raise JaasError("the control flag is missing behind the login module")
    if flag.text.lower() not in CONTROL_FLAGS:
        raise JaasError(f"the control flag must be one of {', '.join(CONTROL_FLAGS)}")
    options: dict[str, str] = {}
    for key in tokens:
        if not key.is_text:
            if key.text == ";":
                return JaasEntry(first.text, flag.text.lower(), options)
            raise JaasError(f"the name of an option is expected, not {key.text}")
        sign, value = next(tokens, None), next(tokens, None)
        if sign is None or sign.text != "=" or sign.is_text or value is None or not value.is_text:
            raise JaasError("an option has no value: each must be name=value, and values with signs in quotes")
        options[key.text] = value.text
    raise JaasError("the entry does not end with a semicolon")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        char = text[position]
        if char <= " ":
            position += 1
        elif char == "/":
            position = _after_comment(text, position)
        elif char in _QUOTES:
            quoted, position = _quoted(text, position)
            yield _Token(quoted, True)
        elif char in _ENDS_OF_WORDS:
            position += 1
            yield _Token(char, False)
        else:
            begin = position
            while position < len(text) and text[position] > " " and text[position] not in _ENDS_OF_WORDS:
                position += 1
            yield _Token(text[begin:position], True)


def _after_comment(text: str, position: int) -> int:
    if text.startswith("/*", position):
        end = text.find("*/", position + 2)
        return len(text) if end < 0 else end + 2
    while position < len(text) and text[position] not in _LINE_ENDS:
        position += 1
    return position


def _quoted(text: str, position: int) -> tuple[str, int]:
    """Return the quoted text that begins at a position, and the position behind it."""
    quote, position = text[position], position + 1
    found: list[str] = []
    while position < len(text) and text[position] not in _LINE_ENDS:
        char = text[position]
        position += 1
        if char == quote:
            break
        if char == "\\" and position < len(text):
            char, position = _escaped(text, position)
        found.append(char)
    return "".join(found), position


def _escaped(text: str, position: int) -> tuple[str, int]:
    """Return the character that a backslash before a position escapes, and the next position."""
    char = text[position]
    if char not in "01234567":
        return _ESCAPES.get(char, char), position + 1
    limit = position + (3 if char <= "3" else 2)
    end = position
    while end < min(limit, len(text)) and text[end] in "01234567":
        end += 1
    return chr(int(text[position:end], 8)), end
