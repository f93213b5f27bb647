"""A real client process: `python -m tests.torture.client URL NAME LOG OPTIONS`.

It creates a seeded mix of tasks, changes and cancels some of them in flight, answers questions, and
writes down what it asked for and what it was told: one line each, at once, into a file of its own.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from remit.app.context import AppContext
from remit.app.service import Outcome
from remit.bootstrap.store_opening import open_core
from remit.domain.task import commands as cmd
from remit.domain.task.task import State, Task
from remit.errors import RemitError, Unavailable
from remit.store_queries.record_queries import INTERACTIONS, InteractionRow

LANES = 32
SILENCE = "silence"
"""A question that begins with this word is one that nobody answers."""
AGENTS = ("general", "general", "build", "plan", "explore")
STUBBORN = {"max_attempts": 50}
"""For tasks that have done nothing wrong: however often their workers die, they are not given
up.
"""

Fields = dict[str, Any]
T = TypeVar("T")


class Mix:
    """Scripts for tasks, from one seed; `made` counts the tasks that will come of them."""

    def __init__(self, random: Random, folder: Path, name: str, tasks: int) -> None:
        self._random, self._folder, self._name, self._tasks = random, folder, name, tasks
        self.made = self._number = 0

    def recipes(self) -> Iterator[str]:
        """Kinds of work until there is enough: some of each deadly kind, whatever the seed.

        The rest as it comes.
        """
        few = max(1, self._tasks // 600)
        kinds = ["poison", "dies_once", "silent", "silent_child", "doomed", "cancel", "chain"] * few
        while self.made < self._tasks:
            kinds += self._random.choices(*zip(*WEIGHTS.items(), strict=True), k=10)
            self._random.shuffle(kinds)
            while kinds and self.made < self._tasks:
                yield kinds.pop()

    def task(self, *steps: list[Any], **fields: Any) -> Fields:
        """The fields of a task; a `write` is given its file, and a text that no other has."""
        self.made += 1
        self._number += 1
        name = f"{self._name}.{self._number}"
        script = [
            (
                ["write", str(self._folder / f"effects-{self._name}"), f"{name}:{index}"]
                if step[0] == "write"
                else step
            )
            for index, step in enumerate(steps)
        ]
        script = [
            ["die", str(self._folder / f"died-{name}")] if step[0] == "die" else step
            for step in script
        ]
        chosen = {
            "owner": self._random.choice(AGENTS),
            "priority": self._random.randrange(5),
            "limits": STUBBORN,
            "title": name,
            "metadata": {"script": script},
        }
        return chosen | fields

    def small(self) -> Fields:
        """A task without others."""
        match self._random.randrange(10):
            case 0:
                return self.task(
                    ["write"], ["sleep", self._short()], ["write"], ["finish", "written"]
                )
            case 1:
                return self.task(["sleep", self._short()], ["finish", "slept"])
            case 2:
                return self.task(["timer", self._short()], ["finish", "in time"])
            case 3:
                return self.task(["ask", f"Which, {self._number}?"], ["finish", "asked"])
            case _:
                return self.task(["say", "Hello"], ["finish", "said"])

    def tree(self, depth: int) -> Fields:
        """A task with subtasks, some blocked on and some not, down to a depth."""
        steps: list[list[Any]] = []
        for kind in self._random.sample(
            ("children", "block", "write"), self._random.randrange(1, 4)
        ):
            match kind:
                case "children":
                    steps.append(
                        [
                            "children",
                            [self._below(depth) for _ in range(self._random.randrange(1, 5))],
                        ]
                    )
                case "block":
                    steps.append(["block", self._below(depth)])
                case _:
                    steps.append(["write"])
        return self.task(*steps, ["finish", "all told"])

    def slow(self) -> Fields:
        """A task that is worked on for a while."""
        return self.task(
            *[["sleep", self._short()] for _ in range(4)], ["write"], ["finish", "slowly"]
        )

    def _below(self, depth: int) -> Fields:
        return self.tree(depth - 1) if depth > 1 and self._random.random() < 0.4 else self.small()

    def _short(self) -> float:
        return round(self._random.uniform(0.005, 0.1), 3)


class Client:
    """A client that makes every kind of change, retries calls without an answer, and records all
    of it.
    """

    def __init__(
        self, core: AppContext, name: str, log: Path, seed: int, folder: Path, tasks: int
    ) -> None:
        self._core, self._name, self._actor = core, name, f"user:{name}"
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._random = Random(f"{seed} {name}")
        self._mix = Mix(self._random, folder, name, tasks)
        self._calls = 0

    async def run(self) -> None:
        """Create and meddle in some lanes, answer beside that, until the input ends."""
        answering = asyncio.create_task(self._answer_all())
        recipes = self._mix.recipes()
        async with asyncio.TaskGroup() as group:
            for _ in range(LANES):
                group.create_task(self._lane(recipes))
        self._say({"done": self._mix.made})
        await asyncio.to_thread(sys.stdin.read)
        answering.cancel()

    async def _lane(self, recipes: Iterator[str]) -> None:
        for kind in recipes:
            await KINDS[kind](self)

    # Its actions.

    async def _one(self) -> None:
        await self._create(self._mix.small())

    async def _tree(self) -> None:
        await self._create(self._mix.tree(2))

    async def _fan_out(self) -> None:
        await self._create(
            self._mix.task(
                ["children", [self._mix.small() for _ in range(self._random.randrange(4, 12))]],
                ["finish", "all told"],
            )
        )

    async def _poison(self) -> None:
        await self._create(
            self._mix.task(["kill"], limits={"max_attempts": self._random.choice((1, 2))})
        )

    async def _dies_once(self) -> None:
        await self._create(self._mix.task(["write"], ["die"], ["write"], ["finish", "survived"]))

    async def _silent(self) -> None:
        await self._create(self._mix.task(["ask", f"{SILENCE}, please"]))

    async def _silent_child(self) -> None:
        await self._create(self._mix.task(["block", self._mix.task(["ask", f"{SILENCE}, please"])]))

    async def _doomed(self) -> None:
        await self._create(self._mix.task(["raise", "Out of luck"], limits={"max_attempts": 1}))

    async def _chain(self) -> None:
        """Tasks that need others: done, or merely settled; the first of them may be called off."""
        first = await self._create(self._mix.slow())
        second = await self._create(self._mix.small())
        third = await self._create(self._mix.small() | {"depends_on": [first, second]})
        await self._create(
            self._mix.small() | {"depends_on": [{"task_id": first, "on": "settled"}, second]}
        )
        await self._create(
            self._mix.small() | {"depends_on": [{"task_id": third, "on": "settled"}]}
        )
        await self._do("UpdateTask", {"task_id": third, "priority": self._random.randrange(5)})
        if self._random.random() < 0.3:
            await self._cancel(first)

    async def _canceled(self) -> None:
        before = self._mix.made
        tree = self._mix.tree(3)
        self._mix.made = before + 1  # what is below it may never come to be
        root = await self._create(tree)
        await asyncio.sleep(self._random.uniform(0, 1))
        await self._cancel(root)

    async def _told(self) -> None:
        """Messages and new instructions while a task is on its way."""
        task = await self._create(self._mix.slow())
        for number in range(self._random.randrange(1, 5)):
            await asyncio.sleep(self._random.uniform(0, 0.1))
            text = f"{self._name} {task} {number}"
            if self._random.random() < 0.3:
                await self._do("UpdateTask", {"task_id": task, "instructions": text})
            else:
                await self._do("SendMessage", {"task_id": task, "message": text})

    async def _drowsy(self) -> None:
        """A task that waits for its turn.

        A message wakes it, and one that it heard of before is followed by a word to run.
        """
        task = await self._create(
            self._mix.task(["sleep", 0.05], ["wait"], ["finish", "woken"], completion="explicit")
        )
        await asyncio.sleep(self._random.uniform(0, 0.3))
        await self._do("SendMessage", {"task_id": task, "message": f"{self._name} {task} wake"})
        seen = await self._until(
            task, lambda now: now.state.terminal or (now.state is State.WAITING and not now.queued)
        )
        if not seen.state.terminal:
            await self._do("RunTask", {"task_id": task})

    async def _twice(self) -> None:
        """The same key from two callers at once."""
        fields = self._mix.small()
        await asyncio.gather(self._create(fields), self._create(fields))

    async def _answer_all(self) -> None:
        """Answer whatever is asked, in a race with the other clients."""
        async with self._core.store.watch() as bell:
            while True:
                await bell.wait()
                for row in await self._open_questions():
                    if not row.question.startswith(SILENCE):
                        await self._do(
                            "Respond",
                            {
                                "interaction_id": row.interaction_id,
                                "answer": f"{self._name} says so",
                            },
                        )
                await asyncio.sleep(0.1)

    async def _open_questions(self) -> list[InteractionRow]:
        asked = {"statuses": ["open"], "task": None, "after": 0, "number": 0, "limit": 200}
        return await self._patiently(lambda: self._core.store.select(INTERACTIONS, asked))

    # How it does it.

    async def _create(self, fields: Fields) -> str:
        outcome = await self._do("CreateTask", {"idempotency_key": fields["title"], **fields})
        assert outcome is not None, "nothing stands against creating it"
        return outcome.task_id

    async def _cancel(self, task: str) -> None:
        await self._do("CancelTask", {"task_id": task})

    async def _do(self, command: str, fields: Fields) -> Outcome | None:
        """Carry out a command, and repeat it until it is answered; record refusals too."""
        kind = getattr(cmd, command)
        while True:
            self._calls += 1
            line = {"call": f"{self._name}/{self._calls}", "command": command, "fields": fields}
            self._say({"asked": line})
            try:
                outcome: Outcome = await self._core.service.do(kind, fields, self._actor)
            except Unavailable as error:
                self._say({"unsure": line, "error": str(error)})
                if command == "SendMessage":
                    return None  # sent again it would be another message
            except RemitError as error:
                self._say({"refused": line, "error": str(error), "details": error.details})
                return None
            else:
                self._say(
                    {
                        "acked": line,
                        "task": outcome.task_id,
                        "updates": outcome.update_ids,
                        "canceled": outcome.canceled,
                    }
                )
                return outcome

    async def _until(self, task: str, what: Callable[[Task], bool]) -> Task:
        async with self._core.store.watch() as bell:
            while not what(now := await self._patiently(lambda: self._core.service.load(task))):
                await bell.wait()
            return now

    async def _patiently(self, read: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await read()
            except Unavailable:
                await asyncio.sleep(0.1)

    def _say(self, line: Fields) -> None:
        os.write(self._log, json.dumps(line, separators=(",", ":")).encode() + b"\n")


KINDS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "one": Client._one,
    "tree": Client._tree,
    "fan_out": Client._fan_out,
    "poison": Client._poison,
    "dies_once": Client._dies_once,
    "silent": Client._silent,
    "silent_child": Client._silent_child,
    "doomed": Client._doomed,
    "chain": Client._chain,
    "cancel": Client._canceled,
    "told": Client._told,
    "drowsy": Client._drowsy,
    "twice": Client._twice,
}
WEIGHTS = {
    "one": 30,
    "tree": 12,
    "fan_out": 6,
    "chain": 6,
    "cancel": 5,
    "told": 12,
    "drowsy": 6,
    "twice": 3,
    "doomed": 1,
}


async def run(url: str, name: str, log: str, seed: int, folder: str, tasks: int) -> None:
    """Be one client."""
    async with open_core(url) as core:
        await Client(core, name, Path(log), seed, Path(folder), tasks).run()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], sys.argv[3], **json.loads(sys.argv[4])))
