"""config.security.jaas: the tokens of Java, and texts that are refused without their secrets."""

from __future__ import annotations

import pytest

from gregor.config.security.jaas import JaasError, parse_jaas


def test_entry() -> None:
    (entry,) = parse_jaas('a.b.PlainLoginModule required username="al\\"ice" password=\'p=;/ ä\' flag=true;')
    assert (entry.login_module, entry.module_name, entry.control_flag) == (
        "a.b.PlainLoginModule",
        "PlainLoginModule",
        "required",
    )
    assert entry.options == {"username": 'al"ice', "password": "p=;/ ä", "flag": "true"}
    assert "p=;" not in repr(entry)


def test_comments_lines_and_several_entries() -> None:
    first, second = parse_jaas("// one\n a REQUIRED x=1 /* y=2 */ ;\n b optional\r\n z = 3 ; / rest")
    assert (first.control_flag, first.options) == ("required", {"x": "1"})
    assert (second.control_flag, second.options) == ("optional", {"z": "3"})


@pytest.mark.parametrize(
    ("text", "value"),
    [(r'"\n\t\\"', "\n\t\\"), (r'"\101\7z"', "A\x07z"), (r'"\400"', " 0"), (r'"\q"', "q"), ('"a\'b"', "a'b")],
)
def test_escapes(text: str, value: str) -> None:
    assert parse_jaas(f"a required x={text};")[0].options == {"x": value}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no login module"),
        ("/* only a comment", "no login module"),
        ("a", "control flag is missing"),
        ("a sometimes;", "one of required"),
        ("a required", "semicolon"),
        ("a required x;", "no value"),
        ("a required x=;", "no value"),
        ("a required password=secret/1;", "semicolon"),
        ("a required = 1;", "name of an option"),
        ("; a required;", "login module is expected"),
        ('a required password="secret\n";', "no value|name of an option|semicolon"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason) as refused:
        parse_jaas(text)
    assert "secret" not in str(refused.value)
