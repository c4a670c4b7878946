"""`python -m fedrf`."""

from fedrf.cli import main

main()
