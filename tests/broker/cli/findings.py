"""What is common to findings of `gregor doctor`."""

from __future__ import annotations

from gregor.broker.cli.doctor.checks import Finding, Level


def wrong(findings: list[Finding]) -> list[Finding]:
    """Those that need a change; whatever is not in order says what to do."""
    assert all(one.remedy for one in findings if one.level is not Level.OK)
    return [one for one in findings if one.level is Level.WRONG]
