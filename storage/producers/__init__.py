"""What a log knows of its idempotent producers."""
