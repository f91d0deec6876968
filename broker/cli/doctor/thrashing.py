"""The check of `gregor doctor` for groups that thrash: that rebalance again and again, so that members read little.

The figures are those of `gregor groups --history`: the records of `__gregor_rebalances` of the last minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from gregor.broker.cli.doctor.checks import Finding, Level
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.groups.history import recent_rebalances
from gregor.broker.cli.wire import WireClient
from gregor.protocol.messages import RebalanceValue

WINDOW_MS = 600_000
MIN_REBALANCES = 10
"""In the window; the restart of a whole group, a member at a time, causes two for each member."""


def examine_thrashing(client: WireClient, mute: Collection[int], now_ms: int) -> list[Finding]:
    """Return the findings about the rebalances that the coordinators have recorded; none without a history."""
    try:
        return check_thrashing(recent_rebalances(client, now_ms - WINDOW_MS, mute))
    except CommandError:
        return []


def check_thrashing(rebalances: Mapping[str, Sequence[RebalanceValue]]) -> list[Finding]:
    """Name the groups above the threshold, with the cause that most of their rebalances began with."""
    found = []
    for group, values in sorted(rebalances.items()):
        # The coordinator leaves some out while there are too many to write.
        count = sum(1 + value.not_recorded for value in values)
        if count < MIN_REBALANCES:
            continue
        causes = Counter(
            (cause.trigger, cause.client_id, cause.client_host.removeprefix("/"))
            for value in values
            for cause in value.causes[:1]
        )
        text = f"group '{group}' thrashes: {count} rebalances in the last {WINDOW_MS // 60_000} min"
        for (trigger, client_id, host), times in causes.most_common(1):
            text += f", {times} of them began with '{trigger}'"
            if client_id:
                text += f" of client '{client_id}' at {host}"
        remedy = (
            f"`gregor groups --history {group}` has the cause of each: for timeouts, raise session.timeout.ms or"
            " max.poll.interval.ms, or let members do less between two polls; for members that come and go, see why"
            " they restart"
        )
        found.append(Finding(Level.WRONG, text, remedy))
    return found
