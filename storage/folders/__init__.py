"""Data folders (`log.dirs`): the logs in them, their checkpoints, loading, moving, closing."""
