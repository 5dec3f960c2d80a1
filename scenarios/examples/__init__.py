"""Examples of what a user writes."""
