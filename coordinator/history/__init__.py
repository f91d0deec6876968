"""The history of rebalances: why each generation of a group came about, and what it cost."""
