"""The common ground of the jobs: arguments, source, sinks, checkpoint, progress and errors."""
