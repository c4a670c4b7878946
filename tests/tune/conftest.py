"""Small runs and search spaces for tests of sweeps."""

import yaml

from tests.conftest import TINY

# One process for all clients of a trial, because it starts faster than four.
SMALL = {**TINY, "resources.clients_per_actor": 4, "federation.mode": "sync", "track.evaluate_every": 2}


def write_space(folder, **parameters):
    """Write a search space, with ``__`` for the dot in keys; return its path."""
    path = folder / "space.yaml"
    path.write_text(yaml.safe_dump({key.replace("__", "."): value for key, value in parameters.items()}))
    return str(path)
