"""One line that names the cause and the remedy."""

from __future__ import annotations

import signal
from collections.abc import Callable

import click
import pytest
from confluent_kafka import KafkaError, KafkaException

from gregor.broker.cli.command import KEY_VALUE, OrderlyEnd, Signalled, only_one, run
from gregor.broker.cli.errors import CommandError, explain


def test_broker_errors_carry_cause_name_and_remedy() -> None:
    text = explain(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, "Topic 'a' already exists.")))
    assert text.startswith("Topic 'a' already exists (TOPIC_ALREADY_EXISTS). ")
    assert "--if-not-exists" in text


def test_errors_without_a_remedy_and_without_a_code() -> None:
    assert explain(KafkaError(KafkaError.INVALID_CONFIG, "bad\n  value")) == "bad value (INVALID_CONFIG)."
    assert explain(KafkaException("some text")) == "some text"


def command(body: Callable[[], object]) -> click.Command:
    @click.command("tool")
    @click.option("--yes", is_flag=True)
    def tool(yes: bool) -> object:
        return body()

    return tool


def raising(error: BaseException) -> Callable[[], object]:
    def body() -> object:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (CommandError("no such thing."), 1, "gregor tool: no such thing."),
        (click.UsageError("wrong."), 1, "gregor tool: wrong. See `gregor tool --help`."),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT, "Failed")), 1, "gregor tool: Failed (_TIMED_OUT). "),
        (KeyboardInterrupt(), 130, ""),
        (Signalled(15), 143, ""),
    ],
)
def test_exit_codes(error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(raising(error)), ["--yes"]) == code
    assert capsys.readouterr().err.startswith(message)


def test_return_value_of_the_command_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(lambda: None), ["--yes"]) == 0
    assert run(command(lambda: 1), ["--yes"]) == 1
    assert run(command(lambda: 0), ["--nope"]) == 1
    assert "No such option" in capsys.readouterr().err


def test_an_error_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run(command(raising(ZeroDivisionError())), ["--yes"])


def test_signals_end_a_command_but_not_a_step_of_it() -> None:
    before = signal.getsignal(signal.SIGTERM)
    steps = []
    with OrderlyEnd() as end:
        with pytest.raises(Signalled) as raised, end.deferred():
            signal.raise_signal(signal.SIGTERM)
            steps.append("the step is finished")
        assert raised.value.exit_code == 143
        with pytest.raises(Signalled):
            signal.raise_signal(signal.SIGINT)
            steps.append("never")
    assert steps == ["the step is finished"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_does_not_wait_for_the_step() -> None:
    with OrderlyEnd() as end, pytest.raises(Signalled), end.deferred():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the step went on")


def test_only_one() -> None:
    assert only_one(("--list", "--reset-offsets"), {"list": False, "reset_offsets": True}) == "--reset-offsets"
    for chosen in (True, False):
        with pytest.raises(click.UsageError, match="exactly one of --list or --delete"):
            only_one(("--list", "--delete"), {"list": chosen, "delete": chosen})


@pytest.mark.parametrize(("text", "pair"), [("a=b=c", ("a", "b=c")), ("a", ("a", "")), ("a= ", ("a", " "))])
def test_key_value(text: str, pair: tuple[str, str]) -> None:
    assert KEY_VALUE.convert(text, None, None) == pair


def test_key_value_needs_a_key() -> None:
    with pytest.raises(click.BadParameter):
        KEY_VALUE.convert("=b", None, None)
