"""Programs that print speed as ratios within one run."""
