"""The controller: pure decisions, and the loop that carries them out."""
