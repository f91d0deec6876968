"""Work beside requests: threads, worker processes, maintenance, watches."""
