"""Helpers for testing programs that use remit: a model that answers by rule, and a runner that
follows a script instead of calling a model.

With the scripted model, remit's own agents work as usual:

    async with scripted_model(lambda asked: "Red." if asked.results else [("ask_user", {"question":
    "Which color?"})]), Remit.open() as remit:
        await remit.task(objective="Paint the shed")

The runner reads its script, a list of steps, from the task's metadata. Each step runs once, even if
the run is interrupted:

    remit.create_task(title="…", owner="general", metadata={"script": [["say", "Hello"], ["ask",
    "Which one?"], ["finish", "Done"]]})
"""

from remit.testing.model_population import PERSONAS, Persona
from remit.testing.rule_model import Answer, Asked, Call, ContextFull, Rule, scripted_model
from remit.testing.scripted_runner import Scripted

__all__ = [
    "PERSONAS",
    "Answer",
    "Asked",
    "Call",
    "ContextFull",
    "Persona",
    "Rule",
    "Scripted",
    "scripted_model",
]
