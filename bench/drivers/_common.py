"""The texts of the job that all drivers run: a lead delegates jobs to workers that read notes.

Drivers import this module by its plain name, so that a driver can also run elsewhere with other
texts.
"""

PARENT_SYSTEM = "Split what you are told to do into jobs, and give each of them to a worker."
WORKER_SYSTEM = "You read notes for somebody else. Say in one line what came of it."


def parent_prompt(n: int, k: int) -> str:
    """The objective of the lead: N jobs with K notes each."""
    return f"fan out {n} k={k}"


def note(note_id: str) -> str:
    """The content of a note."""
    return f"note {note_id}: nothing new"
