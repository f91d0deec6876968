"""All families, in the order of the page. docs/metrics.md has the same table, which a test compares."""

from __future__ import annotations

from gregor.broker.metrics import client_telemetry, cluster, partitions, process, repeated_batches, traffic
from gregor.broker.metrics.family import Family
from gregor.broker.metrics.lag import clients, groups

FAMILIES: dict[str, Family] = {
    family.name: family
    for module in (traffic, cluster, partitions, groups, clients, repeated_batches, process, client_telemetry)
    for family in module.FAMILIES
}


def markdown() -> str:
    """Return the table of docs/metrics.md."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for name, kind, labels, text in FAMILIES.values():
        named = ", ".join(f"`{label}`" for label in labels)
        rows.append(f"| `{name}` | {kind} | {named} | {text} |")
    return "\n".join(rows) + "\n"
