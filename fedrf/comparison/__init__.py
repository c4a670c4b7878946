"""Comparisons of methods, ablations and values of a key over tasks and seeds, with tables and statistical tests."""
