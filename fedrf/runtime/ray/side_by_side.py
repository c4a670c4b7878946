"""Run independent computations side by side on a Ray cluster, each with its own client actors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedrf.runtime.ray.session import RaySession

CLIENTS = 4  # of a typical federation
POLL_SECONDS = 1.0


class Runner:
    """Runs one computation after the other; client actors are kept for the next one."""

    def __init__(self) -> None:
        self.session = RaySession()

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Call a function with its arguments and a session."""
        function(*arguments, self.session)

    def close(self) -> None:
        """Stop the client actors."""
        self.session.close()


def run_side_by_side(
    function: Callable[..., Any],
    calls: Mapping[str, tuple[Any, ...]],
    address: str,
    stop: Callable[[], bool],
) -> Iterator[tuple[str, BaseException | None]]:
    """Call a function for each entry; yield its key when it ends, with the error if it failed.

    As many calls run at a time as the cluster has room for. After `stop` returns true, no further call is started.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    with RaySession(address):
        resources = ray.cluster_resources()
        # A federation waits until its resources are free, so more runners than fit do no harm.
        count = max(1, int(resources.get("GPU") or resources.get("CPU", 1)) // CLIENTS)
        # On this node, because they write to the same folder as the caller. They need no CPU while clients work.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        runner: Any = ray.remote(Runner).options(num_cpus=0, scheduling_strategy=here)
        idle: list[Any] = [runner.remote() for _ in range(min(count, len(calls)))]
        waiting, running = list(calls), dict[Any, tuple[str, Any]]()
        while running or (waiting and not stop()):
            while waiting and idle and not stop():
                key, actor = waiting.pop(0), idle.pop()
                running[actor.run.remote(function, calls[key])] = (key, actor)
            done, _ = ray.wait(list(running), timeout=POLL_SECONDS) if running else ([], [])
            for reference in done:
                key, actor = running.pop(reference)
                error = _error(reference)
                if isinstance(error, ray.exceptions.RayActorError):  # its process died
                    idle.append(runner.remote())
                elif waiting:
                    idle.append(actor)
                else:
                    _end(actor)
                yield key, error


def _error(reference: Any) -> BaseException | None:
    import ray

    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause: BaseException = error.cause
        return cause
    except ray.exceptions.RayActorError as error:
        return error
    return None


def _end(actor: Any) -> None:
    """Stop a runner and its client actors, so that others can use the resources."""
    import ray

    ray.get(actor.close.remote())
    ray.kill(actor)
