"""One broker as a whole: what it opens at its start, and how its parts are connected."""
