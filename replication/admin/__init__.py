"""What admin requests do: topics, configs, elections, producer ids."""
