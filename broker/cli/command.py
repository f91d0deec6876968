"""The common part of all click commands: options, exit codes and the report of errors."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import click
from confluent_kafka import KafkaException

from gregor.broker.cli.errors import CommandError, explain
from gregor.broker.cli.other_flags import why_not
from gregor.broker.cli.version import version_line

DEFAULT_BOOTSTRAP = "localhost:9092"

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


class KeyValue(click.ParamType[Any]):
    """The type of `key=value` options; a missing value is the empty string, as in Kafka's tools."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value[0], value[1]
        key, _, text = str(value).partition("=")
        if not key.strip():
            self.fail(f"'{value}' is not of the form KEY=VALUE.", param, ctx)
        return key.strip(), text


KEY_VALUE = KeyValue()


def bootstrap_option(*more_names: str) -> Callable[[_Decorated], _Decorated]:
    """Return the option --bootstrap-server, which Kafka's tools require and whose default here is the local broker."""
    return click.option(
        "--bootstrap-server",
        *more_names,
        "bootstrap",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        metavar="HOST:PORT,..",
        help="Brokers to connect to first.",
    )


def command_config_option(*more_names: str) -> Callable[[_Decorated], _Decorated]:
    """Return the option --command-config FILE."""
    return click.option(
        "--command-config",
        *more_names,
        "config_file",
        metavar="FILE",
        help="Properties file with client settings.",
    )


class Connection(NamedTuple):
    """The options of a command with sub-commands: the brokers to connect to first, and a file of client settings."""

    bootstrap: str
    config_file: str | None


class _ConnectedGroup(click.Group):
    """A command with sub-commands, each of which accepts the options of the Connection, too."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        cmd.params += [_override("--bootstrap-server", "bootstrap"), _override("--command-config", "config_file")]
        super().add_command(cmd, name)


def _override(flag: str, field: str) -> click.Option:
    def store(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            context.obj = context.obj._replace(**{field: value})

    return click.Option([flag], expose_value=False, hidden=True, callback=store)


def connected_group(name: str, text: str, epilog: str) -> click.Group:
    """Return a command whose sub-commands receive a Connection by `click.pass_obj`; `text` is the start of its help."""

    @click.command(name, cls=_ConnectedGroup, help=text, epilog=epilog)
    @bootstrap_option()
    @command_config_option()
    @click.pass_context
    def group(context: click.Context, bootstrap: str, config_file: str | None) -> None:
        context.obj = Connection(bootstrap, config_file)

    return group


def only_one(names: Sequence[str], given: dict[str, Any]) -> str:
    """Return the one action among `names` that is given; raise UsageError unless it is exactly one."""
    chosen = [name for name in names if given[name.removeprefix("--").replace("-", "_")]]
    if len(chosen) != 1:
        raise click.UsageError(f"Give exactly one of {', '.join(names[:-1])} or {names[-1]}.")
    return chosen[0]


def check_class(flag: str, name: str | None, known: Sequence[str], remedy: str) -> str | None:
    """Return the last part of the Java class name that a flag gives; raise CommandError unless gregor knows it."""
    if name is None:
        return None
    last = re.split(r"[.$]", name)[-1]
    if last not in known:
        raise CommandError(f"{flag} {name}: gregor loads no Java classes and knows only {', '.join(known)}; {remedy}.")
    return last


class Signalled(BaseException):
    """SIGINT or SIGTERM has arrived. Like KeyboardInterrupt, it is no subclass of Exception."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number  # the exit code that shells report for a signal


class OrderlyEnd:
    """A context in which SIGINT and SIGTERM raise Signalled, so that `finally` blocks can flush, commit and close."""

    def __init__(self) -> None:
        self._deferring = False
        self._pending: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> OrderlyEnd:
        self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Delay a signal until the block has ended; a second signal is not delayed."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        if self._pending is not None:
            raise Signalled(self._pending)

    def _stop(self, number: int, frame: object) -> None:
        if self._deferring and self._pending is None:
            self._pending = number
        else:
            raise Signalled(number)


def _version_option() -> click.Option:
    def show(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
        if wanted:
            print(version_line())
            context.exit()

    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show, help="Show gregor's version."
    )


def _refuse_repeated(command: click.Command, prog: str, arguments: Sequence[str]) -> None:
    """Raise UsageError for an option of one value that is given several times, as Kafka's tools do; to click the last
    value counts."""
    context = click.Context(command, info_name=prog)
    _, rest, order = command.make_parser(context).parse_args(list(arguments))
    for option, times in Counter(order).items():
        if isinstance(option, click.Option) and times > 1 and not (option.multiple or option.count or option.is_flag):
            form = f", {option.metavar}" if option.metavar else ""
            raise click.UsageError(f"{' or '.join(option.opts)} is given {times} times, but has one value{form}.")
    if isinstance(command, click.Group) and rest and (inner := command.get_command(context, rest[0])) is not None:
        _refuse_repeated(inner, prog, rest[1:])


def run(command: click.Command, arguments: Sequence[str]) -> int:
    """Run a click command and return its exit code: 0, or 1 after any error, as in Kafka's tools."""
    prog = f"gregor {command.name}"
    if all(parameter.name != "version" for parameter in command.params):
        command.params.append(_version_option())
    if not arguments:
        with click.Context(command, info_name=prog) as context:
            print(command.get_help(context))
        return 1
    try:
        _refuse_repeated(command, prog, arguments)
        return int(command.main(args=list(arguments), prog_name=prog, standalone_mode=False) or 0)
    except click.NoSuchOption as error:
        reason = why_not(command.name, error.option_name)
        return _fail(prog, reason or f"{error.format_message()} See `{prog} --help`.")
    except click.UsageError as error:
        return _fail(prog, f"{error.format_message()} See `{prog} --help`.")
    except (click.ClickException, CommandError) as error:
        return _fail(prog, error.format_message() if isinstance(error, click.ClickException) else str(error))
    except KafkaException as error:
        return _fail(prog, explain(error))
    except Signalled as signalled:
        return signalled.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of standard output has closed it (`| head`). The interpreter must not write to it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _fail(prog: str, message: str) -> int:
    sys.stdout.flush()
    print(f"{prog}: {message}", file=sys.stderr)
    return 1
