"""Helpers of the tests of `gregor doctor` that concern findings."""

from __future__ import annotations

from gregor.broker.cli.doctor.checks import Finding, Level


def wrong(findings: list[Finding]) -> list[Finding]:
    """Return the findings that need a change; check that every finding that is not OK names a remedy."""
    assert all(one.remedy for one in findings if one.level is not Level.OK)
    return [one for one in findings if one.level is Level.WRONG]
