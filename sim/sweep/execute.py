"""Where tasks run: in this process, in local processes, or on a Ray cluster. The results are the same.

An executor takes tasks and gives what was made of them, in the order of the tasks. A worker that
dies is replaced and its task made again; an error that a task raises is raised here.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import islice
from threading import Thread
from typing import Any, Final, Literal, TypeVar

from sim.ahead.choose import expect, expected
from sim.ahead.notice import adopt, watched
from sim.errors import InputError
from sim.sweep.task import Made, Task, run_task

Kind = Literal["local", "ray"]
Executor = Callable[[Sequence[Task]], Iterator[Made]]
ATTEMPTS: Final = 3
"""How often a task is tried when the worker that makes it dies."""
_AHEAD: Final = 3  # tasks in flight per worker: enough to keep it busy, few enough to hold in memory
Handle = TypeVar("Handle")


@contextmanager
def executor(kind: Kind, jobs: int) -> Iterator[Executor]:
    """An executor of ``jobs`` workers; its workers end with the context."""
    if kind == "ray":
        with _ray(jobs) as run_all:
            yield run_all
    elif jobs <= 1:
        yield partial(map, run_task)
    else:
        pool = _Processes(jobs)
        try:
            yield partial(_in_order, pool.submit, pool.result, _AHEAD * jobs)
        finally:
            pool.close()


def _in_order(
    submit: Callable[[Task], Handle], result: Callable[[Handle], Made], ahead: int, tasks: Sequence[Task]
) -> Iterator[Made]:
    """Results in the order of the tasks, with at most ``ahead`` tasks in flight or waiting to be taken."""
    rest = iter(tasks)
    flying = deque(submit(task) for task in islice(rest, ahead))
    while flying:
        made = result(flying.popleft())
        flying.extend(submit(task) for task in islice(rest, 1))
        yield made


# -- local processes -----------------------------------------------------------------------------

Flying = tuple[Task, ProcessPoolExecutor, "Future[Made]"]


class _Processes:
    """Worker processes, replaced all together when one of them dies."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, task: Task) -> Flying:
        """Hand a task to the workers; they start with the first one."""
        for _ in range(ATTEMPTS):
            if self._pool is None:
                self._pool = ProcessPoolExecutor(
                    self._jobs, initializer=_begin, initargs=(watched(), expected())
                )
            try:
                return task, self._pool, self._pool.submit(run_task, task)
            except BrokenProcessPool:
                self._pool = None
        raise _died(task)

    def result(self, flying: Flying) -> Made:
        """What was made of a task, in a second or third try if its worker died."""
        for _ in range(ATTEMPTS):
            task, pool, future = flying
            try:
                return future.result()
            except BrokenProcessPool:
                if pool is self._pool:
                    self._pool = None
                flying = self.submit(task)
        raise _died(flying[0])

    def close(self) -> None:
        """End the workers; tasks that have not begun are not begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _begin(compilations: Any, runs: int) -> None:
    """Begin a worker, which ends when the process that started it is killed: nobody would ever stop it."""
    adopt(compilations)
    expect(runs)
    parent = multiprocessing.parent_process()
    if parent is not None:
        Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _died(task: Task) -> InputError:
    cell, policy, seed = task.key
    return InputError(
        f"a worker died {ATTEMPTS} times while it made {policy} at {cell}, seed {seed}; "
        "if memory ran out, take fewer --jobs or fewer requests"
    )


# -- Ray -----------------------------------------------------------------------------------------


@contextmanager
def _ray(jobs: int) -> Iterator[Executor]:
    """Tasks on the cluster that Ray is connected to or can find, else on ``jobs`` local workers.

    Files that the scenario names, and the results folder, must have the same path on every node.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise InputError("--executor ray needs Ray; install leadline[cluster]") from None
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, jobs)
    remote = ray.remote(run_task).options(num_cpus=1, max_retries=ATTEMPTS - 1)
    workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
    try:
        submit, result = lambda task: (task, remote.remote(task)), partial(_ray_result, ray)
        yield partial(_in_order, submit, result, _AHEAD * workers)
    finally:
        if ours:
            ray.shutdown()


def _connect(ray: Any, jobs: int) -> None:
    """Join the cluster of ``RAY_ADDRESS`` or of this machine; start local workers if there is none."""
    quiet = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:
        ray.init(address="local", num_cpus=jobs, include_dashboard=False, **quiet)


def _ray_result(ray: Any, flying: tuple[Task, Any]) -> Made:
    """What was made of a task; Ray itself replaces workers that die."""
    task, reference = flying
    try:
        made: Made = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise _died(task) from error
    return made
