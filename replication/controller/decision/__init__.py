"""Parts of a decision: the draft of the context, and the elections, moves and deletions that an event requires."""
