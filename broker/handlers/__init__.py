"""One module per API, named by key like its schema."""
