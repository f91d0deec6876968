"""`gregor doctor`: checks of a cluster as its clients see it."""
