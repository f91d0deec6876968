"""Consumer groups, classic protocol."""
