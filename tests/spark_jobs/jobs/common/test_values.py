"""The options of values: what they refuse, and which guarantee of dead letters they choose."""

from __future__ import annotations

import pytest

from gregor.spark_jobs.jobs import route, sessions, top, two_topics, windows
from gregor.spark_jobs.jobs.common.job import Job

TO_TOPIC = ["--topic", "a", "--output-topic", "b", "--checkpoint", "c", "--dead-letter-topic", "d"]
ONCE = [*TO_TOPIC, "--sink", "exactly-once", "--transactional-id", "t"]


@pytest.mark.parametrize(
    ("job", "arguments", "expected"),
    [
        (route.JOB, ONCE, True),
        (route.JOB, [*TO_TOPIC, "--sink", "topic"], False),
        (route.JOB, [*ONCE, "--output-bootstrap-server", "other:9092"], False),
        (windows.JOB, ONCE, True),
        (windows.JOB, [*ONCE, "--chart", "c.svg"], False),
        (sessions.JOB, [*ONCE, "--chart", "c.svg"], False),
        (top.JOB, [*ONCE, "--chart", "c.svg"], False),
        (two_topics.JOB, [*ONCE, "--with", "e"], True),
        (two_topics.JOB, [*ONCE, "--with", "e", "--as-table"], False),
    ],
)
def test_dead_letters_are_in_the_transaction_of_the_result(job: Job, arguments: list[str], expected: bool) -> None:
    assert job.parse(arguments).letters_in_transaction is expected


def test_a_registry_has_a_url_or_only_a_frame() -> None:
    for arguments, expected in (
        (["--schema-file", "f"], (False, None)),
        (["--schema-registry", "--schema-file", "f"], (True, None)),
        (["--schema-registry", "http://r"], (True, "http://r")),
    ):
        values = route.JOB.parse(["--topic", "a", "--value-format", "avro", *arguments]).values
        assert (values.framed, values.registry) == expected


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--value-format", "avro"], "avro needs --schema-file, or --schema-registry with the URL"),
        (
            ["--value-format", "protobuf", "--schema-registry"],
            "protobuf needs --schema-file, or --schema-registry with",
        ),
        (["--value-format", "protobuf", "--schema", "a INT"], "--schema does not fit --value-format protobuf"),
        (["--value-format", "json", "--schema", "a INT", "--schema-file", "f"], "are two schemas; give one"),
        (["--value-format", "text", "--schema-file", "f"], "--schema-file needs --value-format json, avro or protobuf"),
        (["--value-format", "json", "--message", "M"], "--message needs --value-format protobuf"),
        (["--value-format", "json", "--schema-registry", "http://r"], "the five bytes before json need no URL"),
    ],
)
def test_options_of_a_schema_that_do_not_fit_are_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        route.JOB.parse(["--topic", "a", *arguments])
    assert complaint in capsys.readouterr().err
