"""Tables that hold a topic: the changes of a batch, and the formats that apply them exactly once."""
