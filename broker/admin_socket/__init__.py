"""Requests from the broker's own host: compact and retention, now or explained."""
