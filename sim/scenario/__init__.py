"""The scenario file, end to end: YAML with places, models, checks, lints and the shipped catalogue."""
