"""The budget of a task tree: one ledger at its root.

A model call reserves its maximum before it is made and books its real usage afterwards.
"""

from collections.abc import Sequence
from typing import Any

from remit.app.conversations.conversation import Conversation
from remit.app.runs.run_handle import RunHandle
from remit.codec import task_of
from remit.domain.llm.messages import (
    Request,
    Response,
    TextPart,
    Tokens,
    Tool,
    ToolCall,
    ToolResult,
)
from remit.domain.task.task import Limits, Usage
from remit.domain.text.counting import counted, dollars
from remit.ports import Debit, EventStore, OverBudget, ResolvedModel
from remit.store_queries.task_queries import TASKS
from remit.store_queries.tree_queries import BUDGET, HEAD, TREE

ANSWER_TOKENS = 4096
"""The maximum length of an answer in a tree with a budget.

Without a maximum, nothing could be reserved for the answer.
"""
REPORT_TOKENS = 1024
"""The maximum length of the last report. Every earlier call leaves this much of the budget."""
CHARACTERS_PER_TOKEN = 3
UNPRICED = (
    "The model was not called: max_cost is {most}, but the price of {model} is unknown."
    " Set price_input and price_output of its tier in the config ([models.main] or [models.light]),"
    " or limit max_tokens instead of max_cost."
)
ROOTS = 1000
"""How many roots are cached."""

MEDIA_SIZE = 20_000
"""How many characters an image or a PDF counts as.

Providers charge about 1,000 tokens for an image, and more for each page.
"""


class RootLimits:
    """Reads the limits of root tasks.

    A root with many children is large, so it is parsed again only when it has changed.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._known: dict[str, tuple[bytes, Limits, str | None]] = {}

    async def limits(self, root_id: str) -> Limits:
        """Return the current limits of a root.

        After a handoff, return those of the task that replaced it.
        """
        limits, successor = await self._read(root_id)
        while successor is not None:
            limits, successor = await self._read(successor)
        return limits

    async def _read(self, task_id: str) -> tuple[Limits, str | None]:
        """Return the limits of a task and the task that replaced it, if any."""
        (head,) = await self._store.select(HEAD, {"id": int(task_id)})
        known = self._known.get(task_id)
        if known is None or known[0] != head.hash:
            (row,) = await self._store.select(TASKS, {"ids": [int(task_id)]})
            if len(self._known) >= ROOTS:
                self._known.clear()
            task = task_of(row.doc)
            known = self._known[task_id] = row.hash, task.limits, task.superseded_by
        _, limits, successor = known
        return limits, successor

    async def unbooked(self, root_id: str) -> Usage:
        """Return what a tree without a ledger has used; zero if it has a ledger."""
        if await self._store.select(BUDGET, {"id": int(root_id)}):
            return Usage()
        return await used_so_far(self._store, root_id)

    async def booked(self, root_id: str) -> tuple[int, float] | None:
        """Return the tokens and cost used or reserved by a tree; None without a ledger."""
        rows = await self._store.select(BUDGET, {"id": int(root_id)})
        if not rows:
            return None
        return rows[0].tokens, rows[0].cost


async def used(store: EventStore, root_id: str) -> Usage:
    """Return what all tasks of a tree have used."""
    total = Usage()
    for row in await store.select(TREE, {"id": int(root_id)}):
        total = total.plus(task_of(row.doc).usage)
    return total


async def used_so_far(store: EventStore, root_id: str) -> Usage:
    """Return what all tasks of a tree have used, including live runs.

    A task counts the usage of a run when the run ends; until then, it is read from the stored
    answers.
    """
    total = Usage()
    for row in await store.select(TREE, {"id": int(root_id)}):
        task = task_of(row.doc)
        total = total.plus(task.usage)
        if task.run is not None:
            conversation = await Conversation.load(store, task.id)
            total = total.plus(conversation.usage.beyond(task.usage))
    return total


class RunBudget:
    """The part of a run in the budget of its tree.

    If the root has no limit, nothing is counted here.
    """

    def __init__(self, handle: RunHandle, chosen: ResolvedModel) -> None:
        self._handle, self._chosen = handle, chosen
        self._limits = Limits()
        self._reserved = (0, 0.0)
        self._needed = (0, 0.0)
        self._reports = False
        self._tools: Sequence[Tool] = ()
        self._tool_tokens = 0
        self._used = Usage()
        self._roots: RootLimits | None = None
        self._has_ledger = False
        """True once the tree has had a limit during this run.

        The ledger then counts every call, even after the limit is removed.
        """

    async def open(self, roots: "RootLimits") -> None:
        """Read the limits of the tree for the first time in this run."""
        self._roots = roots
        await self.refresh()

    async def refresh(self) -> None:
        """Read the current limits of the root; they apply until the next refresh.

        Called before every request is built, and never between a reservation and its settlement. A
        root knows its own limits from its last write; for other tasks this is one indexed read.
        """
        assert self._roots is not None, "opened before it is refreshed"
        task = self._handle.task
        if task.parent_id is None:
            self._limits = task.limits
        else:
            self._limits = await self._roots.limits(task.root_id)
        if self._limited and not self._has_ledger:
            self._used = await self._roots.unbooked(task.root_id)
            self._has_ledger = True

    def max_answer_tokens(self, *, report: bool) -> int | None:
        """Return the maximum length of an answer; None without a limit."""
        if not self._limited:
            return None
        return REPORT_TOKENS if report else ANSWER_TOKENS

    @property
    def limit_text(self) -> str:
        """The limits of the tree, as text."""
        return _limits_text(self._limits)

    async def remaining(self) -> tuple[int | None, float | None]:
        """Return the tokens and the cost that the tree has left; None for what is not limited."""
        if not self._limited or self._roots is None:
            return None, None
        booked_tokens, booked_cost = await self._booked(self._roots)
        left = _reduced(self._limits, booked_tokens, booked_cost)
        return left.max_tokens, left.max_cost

    async def _booked(self, roots: "RootLimits") -> tuple[int, float]:
        """Return the tokens and the cost that the tree has used or reserved."""
        booked = await roots.booked(self._handle.task.root_id)
        if booked is not None:
            return booked
        return self._used.input_tokens + self._used.output_tokens, self._used.cost

    async def last_report_notice(self) -> str:
        """Return what the agent is told before its last report."""
        assert self._roots is not None, "opened before anything is asked"
        booked = await self._booked(self._roots)
        task = self._handle.task
        is_shared = bool(task.children) or task.root_id != task.id
        used = "used or set aside in the whole tree" if is_shared else "used"
        turn = "another turn" if any(booked) else "a turn"
        limited = _limited_amounts(self._limits, *booked)
        parts = " and ".join(f"{amount.split()[0]} of {limit}" for amount, limit in limited)
        return f"{parts} are {used}, and the rest does not cover {turn} with tools."

    async def shortage(self, *, is_reported: bool = False) -> str:
        """Explain why the budget does not cover the last refused request.

        Every request except the last report leaves enough for that report, so both are counted.
        `is_reported` is for a text that is stored after that report.
        """
        assert self._roots is not None, "opened before anything is asked"
        used = await self._booked(self._roots)
        needs = " and ".join(amount for amount, _ in _limited_amounts(self._limits, *self._needed))
        if used == (0, 0.0):
            return self._shortage_at_start(needs)
        left = _limits_text(_reduced(self._limits, *used))
        what = "a last report needs" if self._reports else "another request and a last report need"
        has = f"had {left} left before its last report" if is_reported else f"has {left} left"
        return (
            f"The budget of the whole tree ({self.limit_text}) is nearly used up: it {has}, but"
            f" {what} up to {needs}."
        )

    def _shortage_at_start(self, needs: str) -> str:
        """Explain why an unused budget does not cover a request that needs these amounts."""
        least = f"a little more than {needs}"
        if needs != self.limit_text:
            least = f"up to {needs}"
        what, rest = "one request and a last report need", ""
        if self._reports:
            what, rest = "one request needs", " Nothing was used."
        return (
            f"The limit of {self.limit_text} for the whole tree is smaller than {what}:"
            f" {least}.{rest}"
        )

    @property
    def missing_price(self) -> str:
        """Why no call can be made: its cost is limited, and its price is unknown.

        Empty if calls can be made.
        """
        own, whole = self._handle.task.limits.max_cost, self._limits.max_cost
        most = own if whole is None else whole
        if most is None or self._cost(Tokens(1, 1)) is not None:
            return ""
        return UNPRICED.format(most=dollars(most), model=self._chosen.shown)

    async def reserve(self, request: Request, *, report: bool) -> bool:
        """Reserve the maximum that a call can use; return False if the budget does not cover it.

        A call whose outcome is unknown keeps its reservation.
        """
        self._reserved = (0, 0.0)
        if not self._limited:
            return True
        if self.missing_price:
            return False
        asked = _size(request) // CHARACTERS_PER_TOKEN + self._tokens_of_tools(request.tools)
        last = self._amounts(Tokens(asked, REPORT_TOKENS))
        self._reports = report
        if report:
            self._reserved = self._needed = last
            limits = self._limits
        else:
            self._reserved = self._amounts(Tokens(asked, ANSWER_TOKENS))
            self._needed = self._reserved[0] + last[0], self._reserved[1] + last[1]
            limits = _reduced(self._limits, *last)
        try:
            await self._debit(*self._reserved, limits=limits)
        except OverBudget:
            return False
        return True

    async def settle(self, response: Response) -> None:
        """Book the real usage of a call instead of its reservation.

        A call without a reservation is booked when its answer is stored: the tree may have got its
        first limit, and a ledger, while the model answered.
        """
        tokens, cost = response.tokens.input + response.tokens.output, response.cost or 0.0
        if self._has_ledger:
            await self._debit(tokens - self._reserved[0], cost - self._reserved[1], limits=Limits())
            return
        known_tokens, known_cost = self._handle.unbooked
        self._handle.unbooked = known_tokens + tokens, known_cost + cost

    async def release(self) -> None:
        """Release the reservation of a call that was not made."""
        if any(self._reserved):
            tokens, cost = self._reserved
            await self._debit(-tokens, -cost, limits=Limits())

    def _tokens_of_tools(self, tools: Sequence[Tool]) -> int:
        """Return the tokens of tools; nearly all calls of a run have the same tools."""
        if self._tools is not tools:
            size = sum(map(_tool_length, tools))
            self._tools, self._tool_tokens = tools, size // CHARACTERS_PER_TOKEN
        return self._tool_tokens

    def _amounts(self, tokens: Tokens) -> tuple[int, float]:
        """Return the tokens and the cost of a call."""
        return tokens.input + tokens.output, self._cost(tokens) or 0.0

    def _cost(self, tokens: Tokens) -> float | None:
        """Return the price of a call; None if it is unknown."""
        return self._chosen.gateway.cost(self._chosen.model, tokens)

    @property
    def _limited(self) -> bool:
        """True if the tree has a limit."""
        return self._limits.max_tokens is not None or self._limits.max_cost is not None

    async def _debit(self, tokens: int, cost: float, *, limits: Limits) -> None:
        """Change what the tree has used or reserved; raise `OverBudget` above its limits."""
        root = int(self._handle.task.root_id)
        await self._handle.keep([], Debit(root, tokens, cost, limits.max_tokens, limits.max_cost))


def _limited_amounts(limits: Limits, tokens: int, cost: float) -> list[tuple[str, str]]:
    """Return the amounts whose kind is limited, each with its limit, as texts."""
    found: list[tuple[str, str]] = []
    if limits.max_tokens is not None:
        found.append((counted(tokens, "token"), counted(limits.max_tokens, "token")))
    if limits.max_cost is not None:
        found.append((dollars(cost), dollars(limits.max_cost)))
    return found


def _limits_text(limits: Limits) -> str:
    """Return the limits that are set, as text."""
    return " and ".join(limit for _, limit in _limited_amounts(limits, 0, 0.0))


def _reduced(limits: Limits, tokens: int, cost: float) -> Limits:
    """Return limits reduced by reserved amounts."""
    return Limits(
        max_tokens=rest_of(limits.max_tokens, tokens), max_cost=rest_of(limits.max_cost, cost)
    )


def with_cost(response: Response, chosen: ResolvedModel) -> Response:
    """Return a response with its cost, which an endpoint may not report."""
    if response.cost is not None:
        return response
    return response._replace(cost=chosen.gateway.cost(chosen.model, response.tokens))


def rest_of(limit: float | None, used: float) -> Any:
    """Return what is left of a limit; None without one."""
    if limit is None:
        return None
    return max(0, limit - used)


def _size(request: Request) -> int:
    """Return how many characters a model reads in a request, without its tools."""
    size = len(request.system)
    for message in request.messages:
        size += sum(map(_length, message.parts))
    return size


def _tool_length(tool: Tool) -> int:
    """Return how many characters a model reads of a tool."""
    return len(tool.name) + len(tool.description) + len(str(tool.schema))


def _length(part: object) -> int:
    """Return how many characters a part of a message counts as."""
    if isinstance(part, ToolResult):
        media_size = 0 if part.media is None else MEDIA_SIZE
        return len(part.text) + media_size
    if isinstance(part, TextPart):
        return len(part.text)
    if isinstance(part, ToolCall):
        return len(str(part.arguments))
    return 0
