"""The words of the job that every driver has done: one who leads hands jobs to workers, who read notes.

Drivers import them by this bare name, so that one can be run elsewhere beside other words of the same names.
"""

PARENT_SYSTEM = "Split what you are told to do into jobs, and give each of them to a worker."
WORKER_SYSTEM = "You read notes for somebody else. Say in one line what came of it."


def parent_prompt(n: int, k: int) -> str:
    """What the one who leads is told: so many jobs of so many notes each."""
    return f"fan out {n} k={k}"


def note(note_id: str) -> str:
    """What stands in a note."""
    return f"note {note_id}: nothing new"
