"""The model that is used if none is set: it searches and reads with the agent's tools and reports
the results.

Its answer depends on the request alone. It follows rules, and says so.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from remit.adapters.models.offline_report import report
from remit.adapters.models.offline_search import (
    PATH,
    SUMMARY,
    MadeCall,
    SearchResults,
    WantedCall,
    best_hit,
    first_calls,
    rank_files,
    read_results,
)
from remit.domain.llm.messages import (
    Message,
    Part,
    Pause,
    Request,
    Response,
    TextPart,
    Tokens,
    ToolCall,
    ToolResult,
)

MODEL = "offline"
MAX_TERMS, MAX_READ, MAX_ROUNDS = 6, 3, 3
LINES_AROUND = 20
NOTICE = "No language model was used. These are plain text-search results."

_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"")
_WORD = re.compile(r"[^\W\d_][\w.-]*\w")
_UPDATE_HEADING = re.compile(r"^\[Task Update: [A-Za-z ]+\]", re.MULTILINE)
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """
    about above acceptance after again agent agents all also always and any are assignment because
    been before being below between both browse bug bugs but called calls can check code contain
    contains context could create criteria define defined defines definition describe did does done
    each else every everything explain explore fetch few file files find fix folder following for
    from get gets give given had has have here how implement implemented implements including
    information instructions into its just know let like list located location look make many may
    more most must need new not now objective off one only other our out output outputs over own
    path per plan please project provide read related repo report repository required result return
    same say says search see set sets should show some steps such summarise summarize summary task
    tell than that the their them then there these they thing this those through title too
    troubleshooting try two under understand until update use used user uses using very via want was
    way were what when where which while who why will with within without work workspace would write
    you your
    """,
    )
)


class OfflineGateway:
    """Answers by rule."""

    async def request(
        self,
        request: Request,
        *,
        pause: Pause | None = None,  # noqa: ARG002 - it is asked once
    ) -> Response:
        """Return the next step of a search, or its report."""
        return reply(request)

    def cost(self, _model: str, _tokens: Tokens) -> float:
        """Return 0: no model is called."""
        return 0.0

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def reply(request: Request) -> Response:
    """Return the next tool calls of a search, or its report."""
    asked = _read_question(request)
    terms: tuple[str, ...] = ()
    if request.agent != SUMMARY:
        terms = search_terms(asked)
    calls_made = list(_past_calls(request))
    found = read_results(calls_made, terms)
    if _count_rounds(request) >= MAX_ROUNDS:
        return _report_response(report(request, asked, terms, found))
    done = [(call.name, call.arguments) for call, _ in calls_made]
    calls = _new_calls(request, done, first_calls(request.agent, asked, terms))
    if not calls and request.agent != SUMMARY:
        calls = _new_calls(request, done, _read_calls(found))
    if calls:
        return _call_response(request, calls)
    return _report_response(report(request, asked, terms, found))


def search_terms(text: str) -> tuple[str, ...]:
    """Return the terms to search for: quoted words first, then program identifiers, then rare
    words.
    """
    weights: Counter[str] = Counter()
    text = PATH.sub(" ", text)  # named files are read, not searched for
    for quoted in _QUOTED.finditer(text):
        weights[(quoted[1] or quoted[2]).strip()] += 100
    words: list[str] = _WORD.findall(text)
    for word in words:
        weights[word] += _weight(word)
    weights = +weights  # without the words that are not searched for
    unique = {term.lower(): term for term in reversed(weights) if term}
    order = {term: place for place, term in enumerate(weights)}
    ranked_terms = sorted(unique.values(), key=lambda term: (-weights[term], order[term]))
    return tuple(ranked_terms[:MAX_TERMS])


def _weight(word: str) -> int:
    """Return how much a word counts; 0 for one that is not searched for."""
    if word.lower() in _COMMON:
        return 0
    if _is_identifier(word):
        return 10
    return int(_is_rare(word))


def _is_identifier(word: str) -> bool:
    """Return True for a word that looks like a name in a program: `snake_case`, `a.b`,
    `camelCase`.
    """
    has_inner_capital = word[1:] != word[1:].lower()
    return "_" in word or "." in word or (has_inner_capital and not word.isupper())


def _is_rare(word: str) -> bool:
    """Return True for a word of more than two letters, or an abbreviation."""
    return len(word) > 2 or word.isupper()


# Messages


def _read_question(request: Request) -> str:
    """Return the request in the user messages, without text about the state of the task."""
    texts = [message.text for message in request.messages if message.role == "user"]
    return "\n".join(map(_without_state, texts))


def _without_state(text: str) -> str:
    """Return a message without its task block and without headings of updates."""
    return _UPDATE_HEADING.sub("", text.partition("<Task id=")[0])


def _past_calls(request: Request) -> Iterator[MadeCall]:
    """Yield the tool calls of a conversation with their results."""
    parts: list[Part] = [part for message in request.messages for part in message.parts]
    results: Mapping[str, ToolResult] = {
        part.call_id: part for part in parts if isinstance(part, ToolResult)
    }
    return ((part, results.get(part.call_id)) for part in parts if isinstance(part, ToolCall))


def _count_rounds(request: Request) -> int:
    """Count the answers that called tools."""
    return sum(map(_has_calls, request.messages))


def _has_calls(message: Message) -> bool:
    return any(isinstance(part, ToolCall) for part in message.parts)


def _new_calls(
    request: Request, done: Collection[tuple[str, Any]], wanted: Iterable[WantedCall]
) -> list[WantedCall]:
    """Return the wanted calls of offered tools that were not made yet."""
    if not request.may_call:
        return []
    offered = {tool.name for tool in request.tools}
    return [call for call in wanted if call[0] in offered and call not in done]


def _call_response(request: Request, wanted: list[WantedCall]) -> Response:
    turn = len(request.messages)
    calls = tuple(
        ToolCall(f"offline_{turn}_{number}", name, arguments)
        for number, (name, arguments) in enumerate(wanted)
    )
    return Response(calls, "tool_calls", Tokens(), MODEL, 0.0)


def _report_response(text: str) -> Response:
    return Response((TextPart(f"{NOTICE}\n\n{text}"),), "end", Tokens(), MODEL, 0.0)


# Calls


def _read_calls(found: SearchResults) -> list[WantedCall]:
    """Return the calls that read the best places, or list the workspace if there are none."""
    wanted: list[WantedCall] = []
    for path, hits in rank_files(found.hits)[:MAX_READ]:
        start = max(1, best_hit(hits).line - LINES_AROUND)
        wanted.append(("Read", {"file_path": path, "offset": start, "limit": 2 * LINES_AROUND + 1}))
    if any((wanted, found.read, found.listed)):
        return wanted
    return [("LS", {"path": "."}), ("Glob", {"pattern": "*"})]
