"""Progress and tables as text."""

from __future__ import annotations

import io

from gregor.spark_jobs.jobs.common.failures import explained
from gregor.spark_jobs.jobs.common.sinks import text_table
from gregor.spark_jobs.jobs.common.terminal import Terminal


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(out: io.StringIO) -> str:
    terminal = Terminal(out)
    terminal.progress("batch 0")
    terminal.progress("batch 1")
    terminal.line("a warning")
    terminal.progress("batch 2")
    terminal.close()
    terminal.close()
    return out.getvalue()


def test_a_pipe_gets_a_line_per_batch() -> None:
    assert show(io.StringIO()) == "batch 0\nbatch 1\na warning\nbatch 2\n"


def test_a_terminal_has_one_line_that_is_replaced() -> None:
    assert show(Screen()) == "\r\x1b[Kbatch 0\r\x1b[Kbatch 1\na warning\n\r\x1b[Kbatch 2\n"


def test_a_table_has_numbers_to_the_right() -> None:
    assert text_table(["key", "count"], [("a", 1234), ("long\nname", None), (b"\xff", 7)]) == (
        "  key         count\n  a           1,234\n  long\\nname      -\n  \\xff            7"
    )


def test_a_failure_is_one_line_with_its_remedy() -> None:
    text = "the query failed: org.apache.kafka.common.errors.UnknownTopicOrPartitionException:\n  no such partition."
    assert explained(text) == (
        "the query failed: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: no such partition: "
        "a topic does not exist; create it with `gregor topics --create --topic NAME`, or correct the name"
    )
    assert explained("something else\nhappened") == "something else happened"
