"""Fetch requests of consumers and followers: sessions, reads, waits."""
