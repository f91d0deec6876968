"""`gregor doctor`."""
