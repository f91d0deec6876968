"""Progress and tables as text."""

from __future__ import annotations

import io

import pytest

from gregor.spark_jobs.arrow.plan import DataLoss
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs.common.failures import explained
from gregor.spark_jobs.jobs.common.sinks import text_table
from gregor.spark_jobs.jobs.common.terminal import Terminal
from gregor.spark_jobs.source.options import SourceOptions
from gregor.spark_jobs.source.resolve import report_data_loss


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


def lost_by_driver() -> str:
    """Return the text of a plan of format("gregor") that finds records gone."""
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    with pytest.raises(JobError) as raised:
        report_data_loss(SourceOptions.from_options(given, True), "the new partition t-0 starts at the offset 5")
    return str(raised.value)


OF_CONNECTOR = (
    "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost because they are not available in\n"
    "Kafka any more; set the source option failOnDataLoss to false.\nReason: the offsets 0 to 5"
)
IN_TASK = str(DataLoss("t", 0, (0, 5), "its first offset is 5"))


@pytest.mark.parametrize("text", [lost_by_driver(), IN_TASK, OF_CONNECTOR], ids=["driver", "task", "connector"])
def test_lost_offsets_of_both_sources_are_one_line_with_the_remedy(text: str) -> None:
    shown = explained(f"the query failed: {text}")
    assert shown.startswith("the query failed: ") and "\n" not in shown
    assert shown.endswith(
        ": records were deleted before this query read them; continue with the ones that are left by "
        "--source-option failOnDataLoss=false, or start anew with another --checkpoint"
    )
