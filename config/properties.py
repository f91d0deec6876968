"""The file format of server.properties: Java's ``java.util.Properties.load``.

Its grammar:

* a natural line ends at ``\\n``, ``\\r`` or ``\\r\\n``; leading white space (space, tab, form feed) is dropped;
* blank lines and lines whose first character is ``#`` or ``!`` are skipped;
* an odd number of backslashes at the end of a line joins the next line to it, without that line's leading white space
  (a comment cannot be continued, but a continuation may begin with ``#``);
* the key ends at the first ``=``, ``:`` or white space that no backslash precedes; white space around the separator is
  dropped, white space at the end of the value is kept;
* escapes: ``\\t \\n \\r \\f``, ``\\uXXXX``; any other escaped character stands for itself.
"""

from __future__ import annotations

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = str.maketrans({"\\": "\\\\", **{char: f"\\{name}" for name, char in _ESCAPES.items()}})


class PropertiesError(ValueError):
    """The text is not a properties file; the only cause is a broken ``\\uXXXX``."""


def parse_properties(text: str) -> dict[str, str]:
    """Return keys and values in file order; as in Java, the last of equal keys has precedence."""
    result: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        result[_unescape(key)] = _unescape(value)
    return result


def load_properties(path: str) -> dict[str, str]:
    """Read a file as UTF-8, the encoding of today's editors, or as Latin-1, Java's encoding, if it is not UTF-8."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text)


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    joined = ""  # the continued lines so far
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANK)
        if not joined and (not line or line[0] in "#!"):
            continue
        joined += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined = joined[:-1]
        else:
            lines.append(joined)
            joined = ""
    if joined:
        lines.append(joined)
    return lines


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\":
            parts.append(char)
            continue
        if at == len(text):  # Java drops a lone backslash at the very end
            break
        escaped = text[at]
        at += 1
        if escaped == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise PropertiesError(f"malformed \\u escape: \\u{digits}")
            parts.append(chr(int(digits, 16)))
            at += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    return "".join(parts)


def escape_value(text: str) -> str:
    """Return the text of a value that Java, which reads Latin-1, and `parse_properties` read as this value."""
    escaped = text.translate(_ESCAPED)
    if escaped[:1] == " ":  # blanks before a value are skipped
        escaped = f"\\{escaped}"
    units = escaped.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join([chr(code) if code < 128 else f"\\u{code:04x}" for code in codes])
