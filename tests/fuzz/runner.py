"""Feeds targets with broken inputs and reports every error that is not one of their documented ones.

A parser may refuse an input only with the errors that it documents, within LIMIT_SECONDS of processor time and
LIMIT_BYTES of memory, whatever counts and lengths the input claims.
"""

from __future__ import annotations

import gc
import logging
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.mutator import Mutator

LIMIT_SECONDS = 0.5
LIMIT_BYTES = 192 * 1024 * 1024
"""Address space that one input may allocate: far above the need of an input of 128 KB, far below a count of 2^31."""
LIMIT_RESIDENT_BYTES = 48 * 1024 * 1024
"""Memory in real use that one input may add."""

Seed = tuple[Any, bytes]
"""The kind of the input (a version, a codec …, of values that `repr` can print), and valid bytes of that kind."""


class TooSlow(BaseException):
    """An input needed more than LIMIT_SECONDS. Not an Exception, so that no parser swallows it."""


class TooLarge(Exception):
    """An input made the process use more than LIMIT_RESIDENT_BYTES more than before."""


@dataclass
class Target:
    """One parser. `run(context, data)` raises what the parser raises, and AssertionError if its answer is wrong.

    `seeds` makes the good inputs; `mend`, given those, puts checksums right again in half of the broken ones, which
    would not come past them otherwise. Of `weight` of all targets depends how often it has its turn. `close` gives back
    what the target holds between inputs.
    """

    name: str
    run: Callable[[Any, bytes], object]
    seeds: Callable[[], Sequence[Seed]]
    allowed: tuple[type[Exception], ...]
    weight: int = 10
    text: bool = False
    mend: Callable[[Any, bytearray], object] | None = None
    close: Callable[[], object] | None = None


@dataclass
class Failure:
    """An error that its parser does not document; `times` it was met, and the shortest input that led to it."""

    target: str
    error: str
    trace: str
    context: Any
    data: bytes
    times: int = 1


@dataclass
class Tally:
    """The outcomes of the inputs of one target."""

    inputs: int = 0
    refused: int = 0
    seconds: float = 0.0


@dataclass
class Report:
    tallies: dict[str, Tally] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        return sum(tally.inputs for tally in self.tallies.values())

    def add(self, other: Report) -> None:
        for name, tally in other.tallies.items():
            mine = self.tallies.setdefault(name, Tally())
            mine.inputs += tally.inputs
            mine.refused += tally.refused
            mine.seconds += tally.seconds
        for key, failure in other.failures.items():
            self._put(key, failure)

    def failed(self, target: Target, context: Any, data: bytes, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        shown = f"{type(error).__name__}: {str(error)[:300]}"
        trace = "".join(traceback.format_exception(error))[-3000:]
        self._put(f"{target.name} {type(error).__name__} {place}", Failure(target.name, shown, trace, context, data))

    def _put(self, key: str, failure: Failure) -> None:
        known = self.failures.get(key)
        if known is not None:
            failure.times += known.times
            if len(known.data) <= len(failure.data):
                failure.context, failure.data, failure.trace = known.context, known.data, known.trace
        self.failures[key] = failure


class Feeder:
    """One target with its seeds and its own stream of random numbers."""

    def __init__(self, target: Target, seed: object) -> None:
        self.target = target
        self.seeds = target.seeds()
        self.bytes = [data for _, data in self.seeds]
        self.mutator = Mutator(f"{target.name}/{seed}")
        self.tally = Tally()

    def check_seeds(self) -> None:
        """Check that valid inputs pass: otherwise the broken ones would fail early, too."""
        for context, data in self.seeds:
            self.target.run(context, data)

    def feed(self, count: int, report: Report) -> None:
        target, mutator, seeds, others = self.target, self.mutator, self.seeds, self.bytes
        run, mend, allowed, is_text = target.run, target.mend, target.allowed, target.text
        arm = signal.setitimer
        resident_kb = _most_resident_kb()
        refused = 0
        began = time.perf_counter()
        for _ in range(count):
            context, good = seeds[mutator.below(len(seeds))]
            changed = mutator.change(good, others, text=is_text)
            if mend is not None and mutator.below(2):
                mend(context, changed)
            data = bytes(changed)
            try:
                arm(signal.ITIMER_VIRTUAL, LIMIT_SECONDS)
                run(context, data)
            except allowed:
                refused += 1
            except (Exception, TooSlow) as error:
                arm(signal.ITIMER_VIRTUAL, 0)
                report.failed(target, context, data, error)
            if (now_kb := _most_resident_kb()) - resident_kb > LIMIT_RESIDENT_BYTES >> 10:
                report.failed(target, context, data, _raised(TooLarge(f"{now_kb - resident_kb} KB more in use")))
            resident_kb = now_kb
        arm(signal.ITIMER_VIRTUAL, 0)
        tally = report.tallies.setdefault(target.name, Tally())
        tally.inputs += count
        tally.refused += refused
        tally.seconds += time.perf_counter() - began


def fuzz(
    targets: Sequence[Target], inputs: int, seed: object, *, progress: Callable[[Report], None] | None = None
) -> Report:
    """Feeds the targets in turns until there were `inputs` in all. `progress` is called about once a second."""
    report = Report()
    share = sum(target.weight for target in targets)
    with quiet_and_limited() as renew_limits, ExitStack() as at_end:
        for target in targets:
            if target.close is not None:
                at_end.callback(target.close)
        feeders = [Feeder(target, seed) for target in targets]
        for feeder in feeders:
            feeder.check_seeds()
        gc.freeze()
        told = time.monotonic()
        while (left := inputs - report.inputs) > 0:
            for feeder in feeders:
                renew_limits()
                # The last round is a smaller one, of the same proportions.
                count = min(feeder.target.weight * 10, -(-left * feeder.target.weight // share))
                feeder.feed(count, report)
                if progress is not None and time.monotonic() - told > 1:
                    told = time.monotonic()
                    progress(report)
        gc.unfreeze()
    return report


def replay(target: Target, context: Any, data: bytes) -> Report:
    """One input once more."""
    report = Report()
    with quiet_and_limited():
        try:
            target.run(context, data)
        except target.allowed:
            pass
        except Exception as error:
            report.failed(target, context, data, error)
        finally:
            if target.close is not None:
                target.close()
    return report


@contextmanager
def quiet_and_limited() -> Iterator[Callable[[], None]]:
    """Isolation, an alarm for TooSlow, and a limit on the address space, which the yielded function renews."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    level = logging.root.manager.disable
    handler = signal.signal(signal.SIGVTALRM, _too_slow)
    logging.disable(logging.CRITICAL)

    def renew() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + LIMIT_BYTES, before[1]))

    try:
        with warnings.catch_warnings():
            # Odd regular expressions are warned of.
            warnings.simplefilter("ignore")
            yield renew
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
        logging.disable(level)


def _too_slow(number: int, frame: object) -> None:
    raise TooSlow(f"more than {LIMIT_SECONDS} s of processor time")


def _most_resident_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as raised:
        return raised
