"""gregor.broker.cli.doctor.thrashing: groups that rebalance again and again."""

from __future__ import annotations

from gregor.broker.cli.doctor.thrashing import MIN_REBALANCES, check_thrashing
from gregor.protocol.messages import RebalanceValue
from tests.broker.cli.findings import wrong


def rebalance(trigger: str, client_id: str = "", not_recorded: int = 0) -> RebalanceValue:
    causes = [RebalanceValue.Cause(trigger=trigger, client_id=client_id, client_host="/10.0.0.7")]
    return RebalanceValue(causes=causes, not_recorded=not_recorded)


def test_group_is_named_with_the_cause_of_most_of_its_rebalances() -> None:
    values = [rebalance("session timeout", "slow-7")] * (MIN_REBALANCES - 2) + [rebalance("member joined", "c")] * 2
    (finding,) = wrong(check_thrashing({"billing": values, "calm": values[:-1]}))
    assert finding.text == (
        "group 'billing' thrashes: 10 rebalances in the last 10 min, 8 of them began with 'session timeout' of client"
        " 'slow-7' at 10.0.0.7"
    )
    assert "gregor groups --history billing" in finding.remedy


def test_rebalances_that_were_not_recorded_count() -> None:
    (finding,) = check_thrashing({"g": [rebalance("topics changed", not_recorded=MIN_REBALANCES - 1)]})
    assert finding.text == (
        "group 'g' thrashes: 10 rebalances in the last 10 min, 1 of them began with 'topics changed'"
    )
