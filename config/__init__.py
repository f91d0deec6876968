"""Settings: one typed table."""
