"""The metrics of a broker: families made at the scrape from counters and state, and the HTTP listener for them."""
