"""Properties files: Java's own reader as the judge."""

from __future__ import annotations

import base64
import pathlib
import random
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.config.properties import PropertiesError, escape_value, load_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1\nb=2", {"a": "1", "b": "2"}),
        ("a:1\r\nb 2\rc\t=\t3", {"a": "1", "b": "2", "c": "3"}),
        ("  \f a  =  1  \n", {"a": "1  "}),
        ("# comment = no\n ! neither\n\na=#value", {"a": "#value"}),
        ("a=1,\\\n   2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\n# continued, not a comment", {"a": "1# continued, not a comment"}),
        ("# a comment cannot be continued \\\na=1", {"a": "1"}),
        ("a=back\\\\\nb=2", {"a": "back\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n", {"a": "1"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("tab=\\t,newline=\\n,return=\\r,feed=\\f,other=\\q", {"tab": "\t,newline=\n,return=\r,feed=\f,other=q"}),
        ("umlaut=\\u00e4\\u00C4", {"umlaut": "äÄ"}),
        ("a==1", {"a": "=1"}),
        ("a = = 1", {"a": "= 1"}),
        ("key", {"key": ""}),
        ("=value", {"": "value"}),
        ("a=1\na=2", {"a": "2"}),
        ("log.dirs=/data/größe", {"log.dirs": "/data/größe"}),
    ],
)
def test_the_grammar(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\u", "\\u00=1", "a=\\u+123"])
def test_a_broken_escape(text: str) -> None:
    with pytest.raises(PropertiesError, match="malformed"):
        parse_properties(text)


def test_files_in_utf_8_and_in_latin_1(tmp_path: pathlib.Path) -> None:
    for encoding in ("utf-8", "latin-1"):
        path = tmp_path / encoding
        path.write_bytes("log.dirs=/data/größe\n".encode(encoding))
        assert load_properties(str(path)) == {"log.dirs": "/data/größe"}
    with pytest.raises(FileNotFoundError):
        load_properties(str(tmp_path / "missing"))


TRICKY = "ab=: \t\f\n\r\\#!u0041\\\\\n=  "


@given(text=st.text(st.sampled_from(TRICKY), max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_text(text: str) -> None:
    try:
        parse_properties(text)
    except PropertiesError:
        assert "\\u" in text


@pytest.mark.parametrize("value", ["", "a", "C:\\zoo\\data\\", " a b ", "\t\n\r\f", "\u00e4\u20ac=:#!", "\\u00e4"])
def test_escaped_values_are_read_as_they_were(value: str) -> None:
    escaped = escape_value(value)
    assert escaped.isascii()
    assert parse_properties(f"a={escaped}\nb=1\n") == {"a": value, "b": "1"}


@pytest.mark.jvm
@pytest.mark.slow
def test_java_reads_the_same() -> None:
    if shutil.which("java") is None:
        pytest.skip("needs a JDK: apt-get install default-jdk-headless")
    random_source = random.Random(5)
    # A last line, since Java makes an entry of a lone backslash at the very end of a file.
    texts = ["".join(random_source.choices(TRICKY, k=random_source.randrange(40))) + "\nend" for _ in range(3000)]
    done = subprocess.run(
        ["java", str(pathlib.Path(__file__).with_name("LoadProperties.java"))],
        input="".join(base64.b64encode(text.encode()).decode() + "\n" for text in texts),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    for text, line in zip(texts, done.stdout.splitlines(), strict=True):
        if line.strip() == "error":
            with pytest.raises(PropertiesError):
                parse_properties(text)
            continue
        expected = {}
        for pair in line.split():
            key, _, value = pair.partition(":")
            expected[base64.b64decode(key).decode()] = base64.b64decode(value).decode()
        assert parse_properties(text) == expected, repr(text)
