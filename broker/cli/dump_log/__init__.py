"""`gregor dump-log`."""
