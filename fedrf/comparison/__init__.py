"""Methods, ablations and values of a key beside each other: over tasks and seeds, with tables and tests."""
