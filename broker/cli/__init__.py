"""One module per gregor sub-command."""
