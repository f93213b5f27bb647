"""The budget of a tree: one ledger at its root, debited before a model call and put right after it."""

from collections.abc import Sequence

from remit.app.activation import Activation
from remit.codec import task_of
from remit.domain.message import Request, Response, TextPart, Tokens, Tool, ToolCall, ToolResult
from remit.domain.value import Limits, Usage
from remit.ports import Chosen, Debit, EventStore, OverBudget

ANSWER_TOKENS = 4096
"""What an answer may take where a tree has a budget: without a most, nothing could be set aside for it."""
REPORT_TOKENS = 1024
"""What the last report of an agent may take; so much is left for it by every call before."""
CHARACTERS_PER_TOKEN = 3
UNPRICED = (
    "The model was not asked: max_cost is {most}, and nobody knows what a call of {model} costs. "
    "Set price_input and price_output of its tier in the config ([models.main] or [models.light]), or limit max_tokens instead of max_cost."
)
ROOTS = 1000
"""How many roots are remembered."""


class Roots:
    """What the roots of trees allow; a root with many children is long, so it is read again only when it has changed."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._known: dict[str, tuple[bytes, Limits]] = {}

    async def limits(self, root_id: str) -> Limits:
        """The limits of a root as they are now."""
        ((head,),) = await self._store.select("head", {"id": int(root_id)})
        known = self._known.get(root_id)
        if known is None or known[0] != head:
            ((_, head, document),) = await self._store.select("tasks", {"ids": [int(root_id)]})
            if len(self._known) >= ROOTS:
                self._known.clear()
            known = self._known[root_id] = head, task_of(document).limits
        return known[1]

    async def unbooked(self, root_id: str) -> Usage:
        """What a tree without a ledger has used; nothing once it has one."""
        if await self._store.select("budget", {"id": int(root_id)}):
            return Usage()
        return await used(self._store, root_id)


async def used(store: EventStore, root_id: str) -> Usage:
    """What the tasks of a tree have used, all together."""
    total = Usage()
    for (document,) in await store.select("tree", {"id": int(root_id)}):
        total = total.plus(task_of(document).usage)
    return total


class Purse:
    """What a run takes from the budget of its tree; where the root sets no limit, nothing is counted here."""

    def __init__(self, activation: Activation, chosen: Chosen) -> None:
        self._activation, self._chosen = activation, chosen
        self._limits = Limits()
        self._reserved = (0, 0.0)
        self._tools = 0
        self._used = Usage()

    async def open(self, roots: "Roots") -> None:
        """Find out what the root of the tree allows, and what was used before it allowed so much only."""
        task = self._activation.task
        self._limits = task.limits if task.root_id == task.id else await roots.limits(task.root_id)
        if self._limited:
            self._used = await roots.unbooked(task.root_id)

    def most(self, *, report: bool) -> int | None:
        """The most that an answer may take."""
        if not self._limited:
            return None
        return REPORT_TOKENS if report else ANSWER_TOKENS

    @property
    def shown(self) -> str:
        """What the tree may use, in words."""
        tokens = f"{self._limits.max_tokens:,} tokens" if self._limits.max_tokens is not None else ""
        cost = f"${self._limits.max_cost:g}" if self._limits.max_cost is not None else ""
        return " and ".join(filter(None, (tokens, cost)))

    @property
    def unpriced(self) -> str:
        """Why no call can be made: what it may cost is limited, by the tree or for the task alone, and nobody knows what it costs."""
        own, whole = self._activation.task.limits.max_cost, self._limits.max_cost
        if (own is None and whole is None) or self._cost(Tokens(1, 1)) is not None:
            return ""
        return UNPRICED.format(most=f"${own if whole is None else whole:g}", model=self._chosen.shown)

    async def reserve(self, request: Request, *, report: bool) -> bool:
        """Set aside the most that a call can take; False if the tree has not got it. A call whose end nobody sees counts as made."""
        if not self._limited:
            return True
        if self.unpriced:
            return False
        asked = _size(request) // CHARACTERS_PER_TOKEN + self._offered(request.tools)
        last = self._priced(Tokens(asked, REPORT_TOKENS))
        self._reserved = last if report else self._priced(Tokens(asked, ANSWER_TOKENS))
        try:
            await self._take(*self._reserved, limits=self._limits if report else _less(self._limits, *last))
        except OverBudget:
            return False
        return True

    async def settle(self, response: Response) -> None:
        """Put back what a call did not take."""
        if self._limited:
            tokens, cost = self._reserved
            await self._take(response.tokens.input + response.tokens.output - tokens, (response.cost or 0.0) - cost, limits=Limits())

    async def free(self) -> None:
        """Put back what a call was to take that is not made."""
        if self._limited:
            tokens, cost = self._reserved
            await self._take(-tokens, -cost, limits=Limits())

    def _offered(self, tools: Sequence[Tool]) -> int:
        """What the tools of a run take, which are the same in all its calls."""
        if not self._tools:
            self._tools = sum(len(tool.name) + len(tool.description) + len(str(tool.schema)) for tool in tools) // CHARACTERS_PER_TOKEN
        return self._tools

    def _priced(self, tokens: Tokens) -> tuple[int, float]:
        """What a call takes of both ledgers."""
        return tokens.input + tokens.output, self._cost(tokens) or 0.0

    def _cost(self, tokens: Tokens) -> float | None:
        return self._chosen.gateway.cost(self._chosen.model, tokens)

    @property
    def _limited(self) -> bool:
        return self._limits.max_tokens is not None or self._limits.max_cost is not None

    async def _take(self, tokens: int, cost: float, *, limits: Limits) -> None:
        root = int(self._activation.task.root_id)
        used = self._used.input_tokens + self._used.output_tokens, self._used.cost
        await self._activation.keep([], Debit(root, tokens, cost, limits.max_tokens, limits.max_cost, *used))


def _less(limits: Limits, tokens: int, cost: float) -> Limits:
    """What is left of limits once something is kept back."""
    return Limits(
        max_tokens=None if limits.max_tokens is None else max(0, limits.max_tokens - tokens),
        max_cost=None if limits.max_cost is None else max(0.0, limits.max_cost - cost),
    )


def _size(request: Request) -> int:
    """How many characters a model has to read, its tools left out."""
    parts = (part for message in request.messages for part in message.parts)
    return len(request.system) + sum(_length(part) for part in parts)


def _length(part: object) -> int:
    if isinstance(part, TextPart | ToolResult):
        return len(part.text)
    return len(str(part.arguments)) if isinstance(part, ToolCall) else 0
