"""Tables in a pipe and on a terminal."""

from __future__ import annotations

import os
import sys

import pytest

from gregor.broker.cli import tables
from gregor.broker.cli.tables import Column, plain_table, print_if_open, print_table, tab_table


def test_plain_columns_are_padded_but_for_the_last() -> None:
    columns = [Column("GROUP", 8), Column("LAG", number=True), Column("CLIENT-ID")]
    text = plain_table(columns, [["a", 12345, "x"], ["a-longer-name", 1, "y"]])
    assert text.splitlines() == [
        "GROUP         LAG   CLIENT-ID",
        "a             12345 x",
        "a-longer-name 1     y",
    ]


def test_plain_table_without_rows_is_its_heading() -> None:
    assert plain_table([Column("GROUP", 10), Column("STATE", 10)], []) == "GROUP      STATE"


def test_columns_of_some_tools_end_with_tabs() -> None:
    columns = [Column("TransactionalId"), Column("ProducerId")]
    text = tab_table(columns, [["a", 12345678901], ["a-longer-name-still", 1]])
    assert text.splitlines() == [
        "TransactionalId    \tProducerId \t",
        "a                  \t12345678901\t",
        "a-longer-name-still\t1          \t",
    ]
    assert tab_table(columns, []) == "TransactionalId\tProducerId\t"


def test_a_pipe_gets_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("A", 3), Column("B")], [["1", "2"]], title="not shown")
    assert capsys.readouterr().out == "A   B\n1   2\n"


def test_a_terminal_gets_a_drawn_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tables, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    print_table([Column("CURRENT-OFFSET", number=True), Column("TOPIC")], [[7, "[not markup]"]], title="orders")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].strip() == "orders"
    assert any("CURRENT" in line for line in lines)
    assert any("─" in line for line in lines)
    assert any("7" in line and "[not markup]" in line for line in lines)
    assert max(map(len, lines)) <= 60


def test_lines_after_the_output_was_closed_are_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        for _ in range(2):
            print_if_open("a line")
