"""A configuration in, a run directory out."""
