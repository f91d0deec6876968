"""Parts of responses that several handlers share."""
