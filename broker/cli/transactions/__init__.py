"""`gregor transactions`."""
