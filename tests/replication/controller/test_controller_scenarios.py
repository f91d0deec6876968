"""Cluster scenarios as scripts: a command, a line of dashes, and what the controller decides.

`REWRITE=1 pytest -k controller_scenarios` writes the present decisions into the scripts, to be reviewed as a diff.
Commands (`t-0` is a partition, replicas are ids with commas, partitions are apart by spaces):

    brokers 1 2 3+      all live brokers; each + after an id is one more life of it
    topic t 1,2 2,1     a topic, or more partitions for one; `topic t unclean 1,2` allows unclean elections
    elected [doomed t]  the controller reads everything again
    doom t              deletion is requested
    stopped 1 t-0       broker 1 confirms deletions
    kept 1 t-0          broker 1 cannot delete it
    failed 1 t-0        a disk of broker 1 failed
    isr t-0 1,2         the leader changed the ISR itself
    caught t-0          all replicas that are alive come in sync
    unclean t on        the topic's setting changes
    preferred t-0       preferred election
    shutdown 1          controlled shutdown
    move t-0=2,3        reassignment; `move t-0=back` calls it back
    gone t              the topic's node was deleted by hand

Every write is also done on a node tree, as the store would: a wrong version or a missing parent fails the script.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.replication.scenario import Scenario

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
DASHES = "----"


def played(script: str) -> str:
    """The script with what is decided now."""
    scenario = Scenario()
    output: list[str] = []
    for block in script.strip().split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        commands = [line for line in lines if line and not line.startswith("#")]
        output += comments
        if commands:
            decisions = scenario.run(commands[0])
            output += [commands[0], DASHES, *(decisions or ["nothing"])]
        output.append("")
    return "\n".join(output)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    script = path.read_text()
    now = played(script)
    if os.environ.get("REWRITE"):
        path.write_text(now)
    assert now.strip() == script.strip()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 5
