"""Simulated models with the habits of real ones.

Each persona reads its request as a model does, and makes its own kind of mistake. The task says
what to answer ("Say RED."); a right result contains that word. Run your own flow against all of
them:

    for persona in PERSONAS:
        async with scripted_model(persona.rule()), Remit.open(folder) as remit:
            result = await remit.task(objective="Say RED.", outputs=["report"])
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from remit.testing.rule_model import Answer, Asked, Call, ContextFull, Rule

BLOCK = re.compile(r"<Task id=\d+>\n.*?</Task>", re.DOTALL)
OUTPUTS = re.compile(r"^Required outputs[^:]*: (.+)$", re.MULTILINE)
WORD = re.compile(r"\bSay ([A-Z]+)\b")
REMINDED = ("[Open steps]\n", "[Not completed]\n")
REJECTED = "[Not accepted yet]"
UPDATED = "[Task Update: Instructions Modified]"
SMALL_CONTEXT = 9_000
"""The number of characters that the persona with a small context reads."""


class Persona(NamedTuple):
    """A kind of model behavior."""

    name: str
    about: str
    rule: Callable[[], Rule]
    """Creates the rule of a model.

    One rule serves any number of conversations.
    """
    is_reliable: bool = True
    """True if every flow ends with a right result; otherwise it may end in a failure that
    says why.
    """


class Reading(NamedTuple):
    """The content that a model uses from its request."""

    asked: Asked
    block: str
    """The task block at the end of the request."""

    @property
    def word(self) -> str:
        """Return the word that the task asks for: from the block, or from the first message if the
        block is shortened.
        """
        return _last_word(self.block) or _last_word(self.asked.objective) or "NOTHING"

    @property
    def answer(self) -> str:
        """Return a sentence with the word that the task asks for."""
        return f"The answer is {self.word}."

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the names of the required outputs."""
        found = OUTPUTS.search(self.block)
        if found is None:
            return ()
        return tuple(name.partition(" ")[0] for name in found[1].split(", "))

    @property
    def needs_call(self) -> bool:
        """Return True if a final message alone does not complete the task."""
        return "To finish: call complete_task" in self.block

    @property
    def open_steps(self) -> int:
        """Return the number of open steps."""
        return len(re.findall(r"^\[ \] \d+\. ", self.block, re.MULTILINE))

    @property
    def may_begin(self) -> bool:
        """Return True in the first turn, if tools may be called."""
        return self.may_call and self.asked.turn == 0

    @property
    def may_call(self) -> bool:
        """Return False in the last turn, which is for a report."""
        return bool(self.asked.tools)


def read_request(asked: Asked) -> Reading:
    """Read a request as a model does."""
    return Reading(asked, _last_match(BLOCK, asked.text))


def _last_word(text: str) -> str:
    """Return the last word that a text asks for; empty if there is none."""
    return _last_match(WORD, text)


def _last_match(pattern: re.Pattern[str], text: str) -> str:
    """Return the last match of a pattern, or of its group; empty if there is none."""
    return next(reversed(pattern.findall(text)), "")


def finish(seen: Reading) -> Answer:
    """End the task as its block says."""
    return _finish_with(seen, seen.answer)


def _finish_with(seen: Reading, answer: str) -> Answer:
    """End the task with an answer, as its block says."""
    if not seen.needs_call or not seen.may_call:
        return answer
    outputs = dict.fromkeys(seen.outputs, answer)
    return [("complete_task", {"summary": answer, "outputs": outputs})]


def _call_first(seen: Reading, call: Call) -> Answer:
    """Make a call in the first turn, and end the task after it."""
    if seen.may_begin:
        return [call]
    return finish(seen)


def plan(seen: Reading, count: int, *, done: bool = False) -> list[Call]:
    """Write a plan with this many steps, with the offered tool."""
    titles = [f"Step {number + 1}" for number in range(count)]
    if "TodoWrite" in seen.asked.tools:
        return [("TodoWrite", {"todos": _todos(titles, done=done)})]
    steps = [{"title": title, "done": done} for title in titles]
    return [("update_steps", {"steps": steps})]


def _todos(titles: list[str], *, done: bool) -> list[dict[str, str]]:
    """Return a plan as TodoWrite takes it."""
    status = "completed" if done else "pending"
    return [{"content": title, "status": status} for title in titles]


def _obedient(asked: Asked) -> Answer:
    seen = read_request(asked)
    if not seen.may_call:
        return seen.answer
    if asked.turn == 0:
        return plan(seen, 2)
    if seen.open_steps:
        return plan(seen, seen.open_steps, done=True)
    return finish(seen)


def _forgetful(asked: Asked) -> Answer:
    """Never marks a step done, and forgets the outputs until reminded."""
    seen = read_request(asked)
    if seen.may_begin:
        return plan(seen, 3)
    was_reminded = seen.needs_call and any(map(asked.text.__contains__, REMINDED))
    if was_reminded or REJECTED in asked.text:
        return finish(seen)
    return seen.answer


def _lazy(asked: Asked) -> Answer:
    """Answers at once and ignores all reminders."""
    return read_request(asked).answer


def _over_planner(asked: Asked) -> Answer:
    """Rewrites its plan several times before it answers, and never marks a step done."""
    seen = read_request(asked)
    if seen.may_call and asked.turn < 5:
        return plan(seen, 20 - asked.turn)
    return finish(seen)


def _premature(asked: Asked) -> Answer:
    """Claims completion in its first turn without outputs, and fixes it after the refusal."""
    seen = read_request(asked)
    return _call_first(seen, ("complete_task", {"summary": seen.answer}))


def _wrong_id(asked: Asked) -> Answer:
    """Uses ids of other tasks until an error corrects it."""
    wrong = {"task_id": "9999", "summary": "Done."}
    return _call_first(read_request(asked), ("complete_task", wrong))


def _authoritative_only(asked: Asked) -> Answer:
    """Follows its first message, unless the system prompt says that updates replace it."""
    seen = read_request(asked)
    if seen.may_begin:
        return [("LS", {"path": "."})]
    word = _last_word(BLOCK.sub("", _trusted_text(asked))) or seen.word
    return _finish_with(seen, f"The answer is {word}.")


def _trusted_text(asked: Asked) -> str:
    """Return the last update if the system prompt gives it authority, or else the first message."""
    if not _grants_authority(asked.messages):
        return asked.objective
    said = [text for role, text in asked.messages if role == "user"]
    updates = (text for text in reversed(said) if UPDATED in text)
    return next(updates, asked.objective)


def _grants_authority(messages: tuple[tuple[str, str], ...]) -> bool:
    """Return True if the system prompt says that updates replace the first message."""
    if not messages:
        return False
    _, system = messages[0]
    return "[Task Update: …]" in system and "authoritative" in system


def _small_context(asked: Asked) -> Answer:
    """Reads a lot, and its server refuses long requests."""
    size = sum(len(text) for role, text in asked.messages if role != "system")
    if size > SMALL_CONTEXT:
        message = f"This model's maximum context length is {SMALL_CONTEXT // 4} tokens."
        raise ContextFull(message)
    seen = read_request(asked)
    if {"TodoWrite", "update_steps"}.isdisjoint(asked.tools):
        return f"Summary: the answer is {seen.word}."
    if asked.turn < 6 and "[Summary of your earlier work]" not in asked.text:
        return [("Read", {"file_path": "long.txt", "offset": asked.turn * 40 + 1, "limit": 60})]
    return finish(seen)


def _malformed(asked: Asked) -> Answer:
    """Sends arguments that are not JSON until an error corrects it."""
    broken = '{"summary": "The answer is RED.", "outputs": {'
    return _call_first(read_request(asked), ("complete_task", broken))


def _persona(name: str, rule: Rule, *, is_reliable: bool = True) -> Persona:
    """Return a persona whose description is the docstring of its rule."""
    return Persona(
        name,
        str(rule.__doc__ or "Reads its request and does what it says."),
        lambda: rule,
        is_reliable,
    )


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
"""All personas; run a flow against each."""
