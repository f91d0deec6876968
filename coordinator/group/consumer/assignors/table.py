"""The assignors of the coordinator, by the names that `group.consumer.assignors` and members use."""

from __future__ import annotations

from gregor.coordinator.group.consumer.assignors.assignor import Assignor
from gregor.coordinator.group.consumer.assignors.range import assign_ranges
from gregor.coordinator.group.consumer.assignors.uniform import assign_uniformly

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
