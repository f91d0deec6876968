"""`gregor spark ...` and the word count's arguments, without Spark."""

import shlex
import sys
from pathlib import Path

import pytest

from gregor.spark_jobs import cli
from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.jobs.wordcount import EXAMPLES, Options, parse


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"]])
def test_help_shows_the_commands_and_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    assert all(f"\n  {command} " in out for command in cli.COMMANDS)


def test_no_command_shows_the_help_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: gregor spark" in capsys.readouterr().err


def test_unknown_command_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["wordcuont"]) == 2
    assert ", ".join(cli.COMMANDS) in capsys.readouterr().err


def test_wordcount_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["wordcount", "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: gregor spark wordcount")
    assert "examples:" in out


def example_commands() -> list[list[str]]:
    lines = [shlex.split(line) for line in EXAMPLES.splitlines() if "wordcount" in line]
    return [words[words.index("--topic") :] for words in lines]


@pytest.mark.parametrize("arguments", example_commands())
def test_examples_of_the_help_are_accepted(arguments: list[str]) -> None:
    assert parse(arguments).topic == "lines"


def test_all_arguments_arrive() -> None:
    line = (
        "-b h:1,h:2 --topic a,b --sink topic --output-topic out --checkpoint c --starting-offsets latest "
        "--max-offsets-per-trigger 7 --interval '5 seconds' --top 3 --kafka-option security.protocol=SSL "
        "--source-option failOnDataLoss=false --source-option x=a=b --conf spark.master=local[1]"
    )
    assert parse(shlex.split(line)) == Options(
        topic="a,b",
        bootstrap_server="h:1,h:2",
        sink="topic",
        output_topic="out",
        checkpoint="c",
        starting_offsets="latest",
        trigger="processing-time",
        interval="5 seconds",
        max_offsets_per_trigger=7,
        top=3,
        kafka_options={"security.protocol": "SSL"},
        source_options={"failOnDataLoss": "false", "x": "a=b"},
        conf={"spark.master": "local[1]"},
    )


@pytest.mark.parametrize(
    "arguments", [["--once"], ["--trigger", "available-now"], ["--trigger", "available-now", "--once"]]
)
def test_once_is_available_now(arguments: list[str]) -> None:
    assert parse(["--topic", "t", *arguments]).trigger == "available-now"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "--topic"),
        ("--topic t --sink topic --checkpoint c", "--output-topic"),
        ("--topic t --sink topic --output-topic o", "--checkpoint"),
        ("--topic t --sink parquet", "--output-path"),
        ("--topic t,u --sink topic --output-topic u --checkpoint c", "never end"),
        ("--topic t --sink nowhere", "console"),
        ("--topic t --max-offsets-per-trigger 0", "above 0"),
        ("--topic t --top -1", "above 0"),
        ("--topic t --conf novalue", "KEY=VALUE"),
        ("--topic t --trigger sometimes", "available-now"),
    ],
)
def test_arguments_that_do_not_fit_end_with_two(line: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["wordcount", *line.split()]) == 2
    assert complaint in capsys.readouterr().err


def test_connector_prints_jars_for_spark_submit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "require_java", lambda: "java")
    monkeypatch.setattr(
        cli, "package_jars", lambda package, java: [Path(f"/{package.artifact}/{name}.jar") for name in "ab"]
    )
    assert cli.main(["connector"]) == 0
    connector = capsys.readouterr().out
    assert connector == "/spark-sql-kafka-0-10_2.13/a.jar,/spark-sql-kafka-0-10_2.13/b.jar\n"
    assert cli.main(["jars", "kafka", "delta"]) == 0
    delta = "/delta-spark_4.1_2.13/a.jar,/delta-spark_4.1_2.13/b.jar"
    assert capsys.readouterr().out == f"{connector.strip()},{delta}\n"


def test_jars_of_an_unknown_package_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["jars", "hudi"]) == 2
    assert "invalid choice: 'hudi'" in capsys.readouterr().err


def test_missing_part_is_one_message_and_code_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> str:
        raise JobError("Spark needs Java 17")

    monkeypatch.setattr(cli, "require_java", fail)
    assert cli.main(["connector"]) == 1
    assert capsys.readouterr().err == "gregor spark: Spark needs Java 17\n"


def test_missing_broker_is_reported_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["wordcount", "--topic", "t", "-b", "localhost"]) == 1
    assert "'localhost' is not an address of a broker; give HOST:PORT" in capsys.readouterr().err


def test_missing_pyspark_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gregor.spark_jobs import installation

    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    assert cli.main(["wordcount", "--topic", "t"]) == 1
    assert "pip install 'gregor[spark]'" in capsys.readouterr().err


def test_help_needs_no_pyspark() -> None:
    """Both help texts must come at once: PySpark's import alone needs more time than everything else here."""
    import subprocess

    script = (
        "import sys; from gregor.spark_jobs import cli; cli.main(['--help']); cli.main(['wordcount', '--help']); "
        "sys.exit('pyspark' in sys.modules or 'confluent_kafka' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
