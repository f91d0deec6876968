"""tests.fuzz: a sampled run over all parsers, and proof that a parser with a fault would be found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.__main__ import main, replay_file, save
from tests.fuzz.mutator import EXTREMES, MAX_BYTES, Mutator
from tests.fuzz.parallel import all_targets
from tests.fuzz.runner import Failure, Report, Target, fuzz

ROOT = Path(__file__).resolve().parents[2]


class Refused(ValueError):
    """The documented error of the parser below."""


def parse(faults: str, data: bytes) -> None:
    """A count of elements, and as many bytes."""
    if not data:
        raise Refused
    count = data[0]
    if "index" not in faults and count > len(data) - 1:
        raise Refused
    if "memory" in faults and count > 200:
        bytearray(count << 22)
    if "time" in faults and count > 200:
        while True:
            pass
    if count:
        data[count]


def target(faults: str = "") -> Target:
    return Target("parser", parse, lambda: [(faults, b"\3abc"), (faults, b"\0"), (faults, b"\1a")], (Refused,))


def errors(report: Report) -> set[str]:
    return {failure.error.partition(":")[0] for failure in report.failures.values()}


def test_nothing_is_said_of_a_good_parser() -> None:
    told: list[int] = []
    report = fuzz([target()], 3000, 1, progress=lambda report: told.append(report.inputs))
    assert errors(report) == set()
    assert report.inputs == 3000
    assert 0 < report.tallies["parser"].refused < 3000


def test_the_proportions_of_targets_hold_to_the_last_input() -> None:
    many, few = target(), target()
    many.weight, few.weight, few.name = 9, 1, "few"
    report = fuzz([many, few], 500, 1)
    assert {name: tally.inputs for name, tally in report.tallies.items()} == {"parser": 450, "few": 50}


@pytest.mark.slow
def test_an_undocumented_error_is_found_and_its_shortest_input_kept() -> None:
    report = fuzz([target("index")], 3000, 1)
    assert errors(report) == {"IndexError"}
    (failure,) = report.failures.values()
    assert failure.times > 10
    assert len(failure.data) == 1
    assert "data[count]" in failure.trace


@pytest.mark.slow
def test_a_giant_allocation_is_found() -> None:
    def seeds() -> list[tuple[str, bytes]]:
        return [("memory", b"\xff" + bytes(255))]

    assert errors(fuzz([Target("parser", parse, seeds, (Refused,))], 60, 1)) == {"MemoryError"}


@pytest.mark.slow
def test_an_endless_loop_is_found() -> None:
    calls = iter(range(1000))

    def run(context: None, data: bytes) -> None:
        parse("time", b"\xff" + bytes(255) if next(calls) == 20 else data[:1])

    report = fuzz([Target("parser", run, lambda: [(None, b"\0")], (Refused,))], 120, 1)
    assert errors(report) == {"TooSlow"}


def test_a_seed_that_is_refused_stops_the_run() -> None:
    with pytest.raises(Refused):
        fuzz([Target("parser", parse, lambda: [("", b"")], (Refused,))], 10, 1)


def test_a_saved_input_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "failure.txt"
    save(Failure("nodes", "an error", "a trace", "state", b"{}"), path)
    assert replay_file(path).failures == {}  # refused, as documented
    path.write_text(repr(("nodes", "no such kind", b"")))
    assert main(["--replay", str(path), "--failures", str(tmp_path / "again")]) == 1


class TestMutator:
    def test_a_seed_makes_always_the_same(self) -> None:
        def changes(seed: object) -> list[bytes]:
            mutator = Mutator(seed)
            return [bytes(mutator.change(b"some bytes 123", [b"others"], text=text)) for text in [True, False] * 50]

        assert changes("a") == changes("a") != changes("b")

    def test_every_mutation_takes_empty_and_short_data(self) -> None:
        mutator = Mutator(1)
        for mutation in {*mutator.binary, *mutator.text}:
            for size in (0, 1, 2, 40):
                for _ in range(20):
                    mutation(bytearray(b"7" * size))

    def test_inputs_stay_small(self) -> None:
        mutator = Mutator(1)
        data = bytes(MAX_BYTES)
        assert max(len(mutator.change(data, [data])) for _ in range(200)) <= MAX_BYTES

    def test_numbers_of_all_widths(self) -> None:
        assert {len(piece) for piece in EXTREMES} == {1, 2, 4, 8}
        assert {b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80" + bytes(7)} <= set(EXTREMES)


@pytest.mark.slow
@pytest.mark.parametrize("one", all_targets(), ids=lambda one: one.name)
def test_good_inputs_pass_and_broken_ones_are_refused_as_documented(one: Target) -> None:
    report = fuzz([one], 150, 7)
    assert report.failures == {}, report.failures


@pytest.mark.very_slow
@pytest.mark.parametrize(
    ("inputs", "arguments"),
    [(40_000, ["--seed", "1"]), (40_000, ["--seed", "2", "--processes", "2"]), (20_000, [])],
)
def test_all_parsers_raise_documented_errors_only(inputs: int, arguments: list[Any], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", str(inputs), *arguments, "--failures", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    print(done.stdout)
    fed = re.search(r"^in all +([0-9,]+)", done.stdout, re.MULTILINE)
    assert fed is not None and int(fed[1].replace(",", "")) >= inputs
