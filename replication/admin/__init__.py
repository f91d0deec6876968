"""Admin requests: topics, configs, elections, reassignments, producer ids."""
