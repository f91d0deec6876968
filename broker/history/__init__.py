"""The history of rebalances: written to its internal topic, away from the path of groups."""
