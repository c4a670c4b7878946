"""What the target does alone, and what is chosen without its labels."""
