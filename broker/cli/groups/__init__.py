"""`gregor groups`."""
