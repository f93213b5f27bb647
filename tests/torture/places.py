"""A database of each kind, and two workers that use it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.torture.ordeal import Place, Worker


@contextmanager
def two_workers(place: Place, folder: Path, options: dict[str, Any]) -> Iterator[list[Worker]]:
    workers = [Worker(place.url, folder, f"first-{number}", options) for number in range(2)]
    try:
        yield workers
    finally:
        for worker in workers:
            if worker.alive:
                worker.end()
