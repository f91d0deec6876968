"""Jobs: arguments, source, transform, sink; each file also runs under spark-submit."""
