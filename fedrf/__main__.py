"""`python -m fedrf`."""

from fedrf.cli.app import main

main()
