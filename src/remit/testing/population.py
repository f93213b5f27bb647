"""A population of simulated models: what real models do that scripted ones do not.

Each persona works by reading its request, as a model does, and errs in its own way. Tasks for it say what to
answer ("Say RED."); a right result holds that word. Run your own flow against all of them:

    for persona in PERSONAS:
        async with scripted_model(persona.rule()), Remit.open(folder) as remit:
            result = await remit.task(objective="Say RED.", outputs=["report"])
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from remit.testing.model import Answer, Asked, Call, ContextFull, Rule

BLOCK = re.compile(r"<Task id=\d+>\n.*?</Task>", re.DOTALL)
OUTPUTS = re.compile(r"^Required outputs[^:]*: (.+)$", re.MULTILINE)
WORD = re.compile(r"\bSay ([A-Z]+)\b")
REMINDED = "[Task Update: Open Steps]"
REJECTED = "[Not accepted yet]"
UPDATED = "[Task Update: Instructions Modified]"
SMALL_CONTEXT = 9_000
"""How many characters the persona with a small context reads."""


class Persona(NamedTuple):
    """A way in which a model works."""

    name: str
    about: str
    rule: Callable[[], Rule]
    """Makes the rule of one conversation's model; the same rule serves any number of conversations."""
    is_reliable: bool = True
    """True if it ends with a right result in every flow; else it may also end in a failure that says why."""


class Reading(NamedTuple):
    """What a model takes from its request."""

    asked: Asked
    block: str
    """The task block at the end of the request."""

    @property
    def word(self) -> str:
        """The word that the task asks for now, by the block, or by the first message where that is shorter."""
        return _last_word(self.block) or _last_word(self.asked.objective) or "NOTHING"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the required outputs."""
        found = OUTPUTS.search(self.block)
        return tuple(name.partition(" ")[0] for name in found[1].split(", ")) if found else ()

    @property
    def needs_call(self) -> bool:
        """True if a final message alone does not complete the task."""
        return "To finish: call complete_task" in self.block

    @property
    def open_steps(self) -> int:
        """How many steps of the plan are not done."""
        return len(re.findall(r"^\[ \] \d+\. ", self.block, re.MULTILINE))

    @property
    def may_call(self) -> bool:
        """False in the last turn, which is for a report."""
        return bool(self.asked.tools)


def reading(asked: Asked) -> Reading:
    """Read a request as a model does."""
    blocks = BLOCK.findall(asked.text)
    return Reading(asked, blocks[-1] if blocks else "")


def _last_word(text: str) -> str:
    found = WORD.findall(text)
    return str(found[-1]) if found else ""


def finish(seen: Reading) -> Answer:
    """End the task as its block says."""
    if not seen.needs_call or not seen.may_call:
        return f"The answer is {seen.word}."
    outputs = dict.fromkeys(seen.outputs, f"The answer is {seen.word}.")
    return [("complete_task", {"summary": f"The answer is {seen.word}.", "outputs": outputs})]


def plan(seen: Reading, count: int, *, done: bool = False) -> list[Call]:
    """Write a plan of so many steps with the tool that is offered for it."""
    titles = [f"Step {number + 1}" for number in range(count)]
    if "TodoWrite" in seen.asked.tools:
        status = "completed" if done else "pending"
        return [("TodoWrite", {"todos": [{"content": title, "status": status} for title in titles]})]
    return [("update_steps", {"steps": [{"title": title, "done": done} for title in titles]})]


def _obedient(asked: Asked) -> Answer:
    seen = reading(asked)
    if not seen.may_call:
        return f"The answer is {seen.word}."
    if asked.turn == 0:
        return plan(seen, 2)
    if seen.open_steps:
        return plan(seen, seen.open_steps, done=True)
    return finish(seen)


def _forgetful(asked: Asked) -> Answer:
    """Never ticks a step and forgets the outputs until it is told of them."""
    seen = reading(asked)
    if seen.may_call and asked.turn == 0:
        return plan(seen, 3)
    if REJECTED in asked.text or (REMINDED in asked.text and seen.needs_call):
        return finish(seen)
    return f"The answer is {seen.word}."


def _lazy(asked: Asked) -> Answer:
    """Answers at once and never does more, whatever it is told."""
    return f"The answer is {reading(asked).word}."


def _over_planner(asked: Asked) -> Answer:
    """Rewrites its plan again and again before it answers, and never ticks a step."""
    seen = reading(asked)
    if seen.may_call and asked.turn < 5:
        return plan(seen, 20 - asked.turn)
    return finish(seen)


def _premature(asked: Asked) -> Answer:
    """Claims completion in its first turn without outputs, and mends it when that is refused."""
    seen = reading(asked)
    if not seen.may_call:
        return f"The answer is {seen.word}."
    if asked.turn == 0:
        return [("complete_task", {"summary": f"The answer is {seen.word}."})]
    return finish(seen)


def _wrong_id(asked: Asked) -> Answer:
    """Names tasks that are not its own, until an error tells it."""
    seen = reading(asked)
    if seen.may_call and asked.turn == 0:
        return [("complete_task", {"task_id": "9999", "summary": "Done."})]
    return finish(seen)


def _authoritative_only(asked: Asked) -> Answer:
    """Follows its first message, unless the system prompt says that updates replace it."""
    seen = reading(asked)
    system = asked.messages[0][1] if asked.messages else ""
    believes = "[Task Update: …]" in system and "authoritative" in system
    updates = [text for role, text in asked.messages if role == "user" and UPDATED in text]
    trusted = updates[-1] if updates and believes else asked.objective
    word = _last_word(BLOCK.sub("", trusted)) or seen.word
    answer = f"The answer is {word}."
    if asked.turn == 0 and seen.may_call:
        return [("LS", {"path": "."})]
    if not seen.needs_call or not seen.may_call:
        return answer
    return [("complete_task", {"summary": answer, "outputs": dict.fromkeys(seen.outputs, answer)})]


def _small_context(asked: Asked) -> Answer:
    """Reads a lot, and its server refuses long requests."""
    size = sum(len(text) for role, text in asked.messages if role != "system")
    if size > SMALL_CONTEXT:
        message = f"This model's maximum context length is {SMALL_CONTEXT // 4} tokens."
        raise ContextFull(message)
    seen = reading(asked)
    if "TodoWrite" not in asked.tools and "update_steps" not in asked.tools:
        return f"Summary: the answer is {seen.word}."
    if asked.turn < 6 and "[Summary of your earlier work]" not in asked.text:
        return [("Read", {"file_path": "long.txt", "offset": asked.turn * 40 + 1, "limit": 60})]
    return finish(seen)


def _malformed(asked: Asked) -> Answer:
    """Writes arguments that are not JSON, until an error tells it."""
    seen = reading(asked)
    if seen.may_call and asked.turn == 0:
        return [("complete_task", '{"summary": "The answer is RED.", "outputs": {')]
    return finish(seen)


def _persona(name: str, rule: Rule, *, is_reliable: bool = True) -> Persona:
    return Persona(name, str(rule.__doc__ or "Reads its request and does what it says."), lambda: rule, is_reliable)


PERSONAS = (
    _persona("obedient", _obedient),
    _persona("forgetful", _forgetful),
    _persona("lazy", _lazy, is_reliable=False),
    _persona("over-planner", _over_planner),
    _persona("premature finisher", _premature),
    _persona("wrong-id caller", _wrong_id),
    _persona("believes only authority", _authoritative_only),
    _persona("small context", _small_context, is_reliable=False),
    _persona("malformed JSON", _malformed),
)
"""The population: run a flow against each."""
