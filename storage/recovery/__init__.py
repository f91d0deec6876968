"""From a partition's folder to its log."""
