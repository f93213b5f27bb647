"""The budget of a tree: one ledger at its root, debited before a model call and put right after it."""

from collections.abc import Sequence

from remit.app.activation import Activation
from remit.app.conversation import Conversation
from remit.codec import task_of
from remit.domain.counting import counted, dollars
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

MEDIA_SIZE = 20_000
"""Characters that an image or a PDF counts for; providers take 1,000 tokens for an image, and more for each page."""


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
        return await used_so_far(self._store, root_id)

    async def booked(self, root_id: str) -> tuple[int, float] | None:
        """The tokens and the money that the ledger of a tree has used or set aside; None without a ledger."""
        rows = await self._store.select("budget", {"id": int(root_id)})
        return (rows[0][0], rows[0][1]) if rows else None


async def used(store: EventStore, root_id: str) -> Usage:
    """What the tasks of a tree have used, all together."""
    total = Usage()
    for (document,) in await store.select("tree", {"id": int(root_id)}):
        total = total.plus(task_of(document).usage)
    return total


async def used_so_far(store: EventStore, root_id: str) -> Usage:
    """What the tasks of a tree have used, including live runs.

    A task counts the use of a run when the run ends; until then, the stored answers tell it.
    """
    total = Usage()
    for (document,) in await store.select("tree", {"id": int(root_id)}):
        task = task_of(document)
        total = total.plus(task.usage)
        if task.run is not None:
            total = total.plus((await Conversation.load(store, task.id)).usage.beyond(task.usage))
    return total


class Purse:
    """What a run takes from the budget of its tree; where the root sets no limit, nothing is counted here."""

    def __init__(self, activation: Activation, chosen: Chosen) -> None:
        self._activation, self._chosen = activation, chosen
        self._limits = Limits()
        self._reserved = (0, 0.0)
        self._needed = (0, 0.0)
        self._reports = False
        self._tools: Sequence[Tool] = ()
        self._tool_tokens = 0
        self._used = Usage()
        self._roots: Roots | None = None
        self._books = False
        """True once the tree was limited during this run.

        The ledger then counts every call, also after the limit is removed.
        """

    async def open(self, roots: "Roots") -> None:
        """Read the limits of the tree for the first time in this run."""
        self._roots = roots
        await self.refresh()

    async def refresh(self) -> None:
        """Read the limits of the root as they are now; they hold until the next refresh.

        Called before every request is built, and never between a reservation and its settlement.
        A root knows its own limits from its last write; for other tasks this is one indexed read.
        """
        assert self._roots is not None, "opened before it is refreshed"
        task = self._activation.task
        self._limits = task.limits if task.root_id == task.id else await self._roots.limits(task.root_id)
        if self._limited and not self._books:
            self._used = await self._roots.unbooked(task.root_id)
            self._books = True

    def most(self, *, report: bool) -> int | None:
        """The most that an answer may take."""
        if not self._limited:
            return None
        return REPORT_TOKENS if report else ANSWER_TOKENS

    @property
    def shown(self) -> str:
        """What the tree may use, in words."""
        tokens = counted(self._limits.max_tokens, "token") if self._limits.max_tokens is not None else ""
        cost = dollars(self._limits.max_cost) if self._limits.max_cost is not None else ""
        return " and ".join(filter(None, (tokens, cost)))

    async def left(self) -> tuple[int | None, float | None]:
        """The tokens and the money that the tree has left; None for what is not limited."""
        if not self._limited or self._roots is None:
            return None, None
        tokens, cost = self._left(*await self._booked(self._roots))
        return (
            None if self._limits.max_tokens is None else tokens,
            None if self._limits.max_cost is None else cost,
        )

    async def _booked(self, roots: "Roots") -> tuple[int, float]:
        """What the tree has used or set aside."""
        booked = await roots.booked(self._activation.task.root_id)
        used = self._used.input_tokens + self._used.output_tokens, self._used.cost
        return used if booked is None else booked

    async def used_up(self) -> str:
        """What an agent is told before its last report, which the budget of the tree still covers."""
        assert self._roots is not None, "opened before anything is asked"
        booked = await self._booked(self._roots)
        tokens, cost = counted(booked[0], "token").split()[0], dollars(booked[1])
        parts = [f"{tokens} of {counted(most, 'token')}"] if (most := self._limits.max_tokens) is not None else []
        parts += [f"{cost} of {dollars(worth)}"] if (worth := self._limits.max_cost) is not None else []
        task = self._activation.task
        is_shared = bool(task.children) or task.root_id != task.id
        used = "used or set aside in the whole tree" if is_shared else "used"
        turn = "another turn" if any(booked) else "a turn"
        return f"{' and '.join(parts)} are {used}, and the rest does not cover {turn} with tools."

    async def shortage(self, *, is_reported: bool = False) -> str:
        """Why the tree cannot pay for the request that was refused last: what it needs, and what is left.

        Every request but the last report leaves enough for that report, so both are needed.
        `is_reported` is for a text that is stored after that report.
        """
        assert self._roots is not None, "opened before anything is asked"
        used = await self._booked(self._roots)
        needs, left = self._limited_part(*self._needed), self._limited_part(*self._left(*used))
        if used == (0, 0.0):
            needs = f"up to {needs}" if needs != self.shown else f"a little more than {needs}"
            what, rest = ("one request needs", " Nothing was used.") if self._reports else ("one request and a last report need", "")
            return f"The limit of {self.shown} for the whole tree is smaller than {what}: {needs}.{rest}"
        what = "a last report needs" if self._reports else "another request and a last report need"
        has = f"had {left} left before its last report" if is_reported else f"has {left} left"
        return f"The budget of the whole tree, {self.shown}, {has}, and {what} up to {needs}."

    def _left(self, tokens: int, cost: float) -> tuple[int, float]:
        return max(0, (self._limits.max_tokens or 0) - tokens), max(0.0, (self._limits.max_cost or 0.0) - cost)

    def _limited_part(self, tokens: int, cost: float) -> str:
        """Amounts in words, of what is limited."""
        parts = [counted(tokens, "token")] if self._limits.max_tokens is not None else []
        parts += [dollars(cost)] if self._limits.max_cost is not None else []
        return " and ".join(parts)

    @property
    def unpriced(self) -> str:
        """Why no call can be made: what it may cost is limited, by the tree or for the task alone, and nobody knows what it costs."""
        own, whole = self._activation.task.limits.max_cost, self._limits.max_cost
        most = own if whole is None else whole
        if most is None or self._cost(Tokens(1, 1)) is not None:
            return ""
        return UNPRICED.format(most=dollars(most), model=self._chosen.shown)

    async def reserve(self, request: Request, *, report: bool) -> bool:
        """Set aside the most that a call can take; False if the tree has not got it. A call whose end nobody sees counts as made."""
        self._reserved = (0, 0.0)
        if not self._limited:
            return True
        if self.unpriced:
            return False
        asked = _size(request) // CHARACTERS_PER_TOKEN + self._offered(request.tools)
        last = self._priced(Tokens(asked, REPORT_TOKENS))
        self._reserved = last if report else self._priced(Tokens(asked, ANSWER_TOKENS))
        self._needed = last if report else (self._reserved[0] + last[0], self._reserved[1] + last[1])
        self._reports = report
        try:
            await self._take(*self._reserved, limits=self._limits if report else _less(self._limits, *last))
        except OverBudget:
            return False
        return True

    async def settle(self, response: Response) -> None:
        """Put back what a call did not take."""
        if self._books:
            tokens, cost = self._reserved
            await self._take(response.tokens.input + response.tokens.output - tokens, (response.cost or 0.0) - cost, limits=Limits())

    async def free(self) -> None:
        """Put back what a call was to take that is not made."""
        if any(self._reserved):
            tokens, cost = self._reserved
            await self._take(-tokens, -cost, limits=Limits())

    def _offered(self, tools: Sequence[Tool]) -> int:
        """What the tools of a run take, which are nearly always the same in all its calls."""
        if self._tools is not tools:
            size = sum(len(tool.name) + len(tool.description) + len(str(tool.schema)) for tool in tools)
            self._tools, self._tool_tokens = tools, size // CHARACTERS_PER_TOKEN
        return self._tool_tokens

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
    if isinstance(part, ToolResult):
        return len(part.text) + (MEDIA_SIZE if part.media is not None else 0)
    if isinstance(part, TextPart):
        return len(part.text)
    return len(str(part.arguments)) if isinstance(part, ToolCall) else 0
