"""Programs that print speed as ratios within one run, and accuracy with hostile clients."""
