"""The assignors of the coordinator, by the names that `group.consumer.assignors` and members use."""

from gregor.coordinator.group.consumer.assignment.range import assign_ranges
from gregor.coordinator.group.consumer.assignment.uniform import assign_uniformly
from gregor.coordinator.group.consumer.assignor import Assignor

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
