"""The log of requests and the log of slow ones."""
