"""TLS of listeners: settings, key and trust stores, contexts, and the names of principals."""
