"""gregor.broker.cli.doctor.certificates: certificates that are about to expire."""

from __future__ import annotations

import pytest

from gregor.broker.cli.doctor.certificates import check_certificates

ENDS = "Jun  1 12:00:00 2030 GMT"
ENDS_MS = 1_906_545_600_000
DAY_MS = 86_400_000


@pytest.mark.parametrize(("days", "level"), [(30, "OK"), (29.9, "NOTE"), (7, "NOTE"), (6.9, "WRONG"), (-1, "WRONG")])
def test_level_by_the_days_that_are_left(days: float, level: str) -> None:
    (finding,) = check_certificates({3: {"notAfter": ENDS}}, ENDS_MS - int(days * DAY_MS))
    assert finding.level.name == level
    assert finding.text == f"the certificate of broker 3 expires in {max(0, int(days))} days, at {ENDS}"
    assert ("renew" in finding.remedy) == (level != "OK")


def test_connection_without_tls_has_no_certificate() -> None:
    assert check_certificates({3: {}}, 0) == []
