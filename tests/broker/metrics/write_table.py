"""Write the table of docs/metrics.md from the families."""

from __future__ import annotations

import re
from pathlib import Path

from gregor.broker.metrics.table import markdown
from tests.support.processes import ROOT

PAGE = Path(ROOT, "docs/metrics.md")

if __name__ == "__main__":
    PAGE.write_text(re.sub(r"\| metric \|(?:.*\n\|)*.*\n", lambda _: markdown(), PAGE.read_text(), count=1))
