"""`python -m tune`."""

from tune.cli import main

main()
