"""Brokers and a ZooKeeper on hosts of their own, under load, while things break; see chaos.py.

Three brokers of gregor in each run, and every day one of the other clusters; `--every-case` runs all of them.
"""

from __future__ import annotations

import datetime
import subprocess
import sys

import pytest

from tests.cluster import network
from tests.cluster.security import PROTOCOLS
from tests.support.processes import ROOT, clean_environment
from tests.support.sampling import of_the_day

pytestmark = [pytest.mark.very_slow, pytest.mark.jvm]

OTHERS = {"one broker": ("--count", "1"), "beside Apache Kafka": ("--brokers", "mixed")}
OTHERS_TODAY = 1
LIMIT_S = 900.0
"""For all that is not faults: the start of the cluster, and the ends of all clients."""


def run(*flags: str) -> str:
    """Return the output of a run; fail if the run found a violation."""
    if reason := network.missing():
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.cluster.chaos", *flags]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT_S + 60 * float(flags[flags.index("--minutes") + 1]),
    )
    assert done.returncode == 0, f"{' '.join(flags)}\n{done.stdout[-20_000:]}\n{done.stderr[-5000:]}"
    return done.stdout


def protocol(day: datetime.date, number: int) -> str:
    """Return the security of the listeners of the run with this number: it changes every day."""
    return PROTOCOLS[(day.toordinal() + number) % 2]


def test_minutes_of_faults_lose_nothing(pytestconfig: pytest.Config, day: datetime.date) -> None:
    """A minute by default; `--chaos-minutes 30` names others."""
    said = run(
        "--minutes",
        str(pytestconfig.getoption("--chaos-minutes")),
        "--seed",
        "1",
        "--settle",
        "1",
        "--security",
        protocol(day, 0),
    )
    assert "nothing is amiss" in said


@pytest.mark.by_day(1)
def test_a_rolling_restart_goes_unnoticed(day: datetime.date) -> None:
    said = run("--minutes", "0.1", "--kinds", "rolling restart", "--security", protocol(day, 1))
    assert "nothing is amiss" in said


@pytest.mark.by_day(1)
def test_faults_of_other_clusters_lose_nothing(pytestconfig: pytest.Config, day: datetime.date) -> None:
    """Their seed, and with it the number of Apache Kafka's broker, changes every day."""
    count = len(OTHERS) if pytestconfig.getoption("--every-case") else OTHERS_TODAY
    for name in of_the_day(list(OTHERS), count, day):
        said = run("--minutes", "0.3", "--seed", str(day.toordinal()), "--settle", "1", *OTHERS[name])
        assert "nothing is amiss" in said
