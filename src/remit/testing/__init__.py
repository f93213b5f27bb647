"""For tests of what is built on remit: a model that answers by rule, and a runner that follows a script instead of asking one.

With the model, remit's own agents work as they do with any other:

    async with scripted_model(lambda asked: "Red." if asked.results else [("ask_user", {"question": "Which color?"})]), Remit.open() as remit:
        await remit.task(objective="Paint the shed")

The runner's script is in the task's metadata, as a list of steps; each step is done once, however often the run is interrupted:

    remit.create_task(title="…", owner="general", metadata={"script": [["say", "Hello"], ["ask", "Which one?"], ["finish", "Done"]]})
"""

from remit.testing.model import Answer, Asked, Call, ContextFull, Rule, scripted_model
from remit.testing.population import PERSONAS, Persona
from remit.testing.runner import Scripted

__all__ = ["PERSONAS", "Answer", "Asked", "Call", "ContextFull", "Persona", "Rule", "Scripted", "scripted_model"]
