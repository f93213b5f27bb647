"""What runs where no model is set: it searches and reads with the agent's tools and reports what it found.

It is a function of the request alone, follows rules, says so, and never pretends to have understood anything.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import log2
from typing import Any, NamedTuple

from remit.adapters.models.scripted import tell
from remit.domain.agent import TOOLS
from remit.domain.choice import HOW_TO_SET_A_MODEL
from remit.domain.message import OnPart, Part, Pause, Request, Response, TextPart, Tokens, ToolCall, ToolResult

MODEL = "offline"
MAX_TERMS, MAX_NAMED, MAX_READ, MAX_SHOWN, MAX_ROUNDS = 6, 3, 3, 12, 3
HITS_A_TERM, LINES_AROUND = 100, 20

NOTICE = "No language model was used. These are plain text-search results."
HOW_TO = f"For a reasoned answer, configure a model. {HOW_TO_SET_A_MODEL}"

_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"")
_PATH = re.compile(r"(?<![\w/.-])(?:[\w.-]+/)*[\w-]+\.[A-Za-z][A-Za-z0-9]{0,5}(?![\w/])")
_WORD = re.compile(r"[^\W\d_][\w.-]*\w")
_HIT = re.compile(r"^(?P<path>[^\s:][^:\n]{0,300}):(?P<line>\d{1,7})[:-](?P<text>.*)$", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*+(?P<line>\d{1,7})[\t→:|] ?(?P<text>.*)$", re.MULTILINE)
_DEFINITION = re.compile(
    r"^\s*(?:export\s+|pub\s+|public\s+|async\s+|static\s+)*(?:def|class|function|func|fn|interface|struct|enum|trait|type|module)\s+\w+"
)
_HEADING = re.compile(r"^#{1,6}\s+\S")
_SENTENCE = re.compile(r"(?<=[.!?。])\s+")
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """
    about above acceptance after again agent agents all also always and any are assignment because been before being below between both
    browse bug bugs but called calls can check code contain contains context could create criteria define defined defines definition
    describe did does done each else every everything explain explore fetch few file files find fix folder following for from get gets give
    given had has have here how implement implemented implements including information instructions into its just know let like list located
    location look make many may more most must need new not now objective off one only other our out output outputs over own path per plan
    please project provide read related repo report repository required result return same say says search see set sets should show some
    steps such summarise summarize summary task tell than that the their them then there these they thing this those through title too
    troubleshooting try two under understand until update use used user uses using very via want was way were what when where which while
    who why will with within without work workspace would write you your
    """,
    )
)


class OfflineGateway:
    """Answers by rule."""

    async def request(self, request: Request, *, on_part: OnPart | None = None, pause: Pause | None = None) -> Response:  # noqa: ARG002 - it is asked once
        """The next step of a search, or its report."""
        answer = reply(request)
        if on_part:
            tell(answer, on_part)
        return answer

    def cost(self, _model: str, _tokens: Tokens) -> float:
        """Nothing, whatever it takes."""
        return 0.0

    async def close(self) -> None:
        """Nothing to let go of."""


class Hit(NamedTuple):
    """A line that holds a term."""

    path: str
    line: int
    text: str
    term: str


class Found(NamedTuple):
    """What the tools have said so far; what is searched for and not in `searched` is not known to be nowhere."""

    searched: tuple[str, ...]
    hits: tuple[Hit, ...]
    read: tuple[tuple[str, str], ...]
    listed: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def looked(self) -> bool:
        """True if any look at the workspace worked, so that finding nothing means something."""
        return bool(self.searched or self.read or self.listed)


Wanted = tuple[str, dict[str, Any]]


def reply(request: Request) -> Response:
    """What comes next after what was said: more tools, or the report."""
    # What a request says about the state of the task is not what is looked for.
    asked = "\n".join(message.text.partition("<Task id=")[0] for message in request.messages if message.role == "user")
    terms = () if request.agent == "summary" else search_terms(asked)
    made = list(_made(request))
    found = gathered(made, terms)
    rounds = sum(any(isinstance(part, ToolCall) for part in message.parts) for message in request.messages)
    offered = {tool.name for tool in request.tools if request.may_call}
    done = [(call.name, call.arguments) for call, _ in made]
    if rounds < MAX_ROUNDS:
        for wanted in (_searches(request.agent, asked, terms), () if request.agent == "summary" else _readings(found)):
            calls = [want for want in wanted if want[0] in offered and want not in done]
            if calls:
                return _calling(request, calls)
    return _saying(report(request, asked, terms, found))


def search_terms(text: str) -> tuple[str, ...]:
    """What to search for: quoted words first, then names as programs have them, then rare words."""
    weights: Counter[str] = Counter()
    text = _PATH.sub(" ", text)  # files that are named are read, not searched for
    for quoted in _QUOTED.finditer(text):
        weights[(quoted[1] or quoted[2]).strip()] += 100
    for word in _WORD.findall(text):
        name = "_" in word or "." in word or (word[1:] != word[1:].lower() and not word.isupper())
        if word.lower() not in _COMMON and (name or len(word) > 2 or word.isupper()):
            weights[word] += 10 if name else 1
    unique = {term.lower(): term for term in reversed(weights) if term}
    order = {term: place for place, term in enumerate(weights)}
    return tuple(sorted(unique.values(), key=lambda term: (-weights[term], order[term]))[:MAX_TERMS])


def gathered(made: Iterable[tuple[ToolCall, ToolResult | None]], terms: tuple[str, ...]) -> Found:
    """The results of tools, taken apart; what cannot be read as a result of its tool counts for nothing."""
    searched: list[str] = []
    hits: dict[tuple[str, int, str], Hit] = {}
    read: list[tuple[str, str]] = []
    listed: list[str] = []
    failed: list[str] = []
    patterns = {_escaped(term): term for term in terms}
    for call, result in made:
        if result is None:
            continue
        if result.is_error:
            failed.append(f"{call.name} {_first_line(result.text)}")
        elif call.name == "Grep":
            term = patterns.get(str(call.arguments.get("pattern")), str(call.arguments.get("pattern")))
            searched.append(term)
            for match in _HIT.finditer(result.text):
                hit = Hit(match["path"].removeprefix("./"), int(match["line"]), match["text"].strip(), term)
                hits.setdefault((hit.path, hit.line, term), hit)
        elif call.name == "Read":
            read.append((str(call.arguments.get("file_path")), result.text))
        elif call.name in ("LS", "Glob"):
            listed.extend(line.strip() for line in result.text.splitlines() if line.strip())
    return Found(tuple(searched), tuple(hits.values()), tuple(read), tuple(dict.fromkeys(listed)), tuple(failed))


def ranked(hits: Iterable[Hit]) -> list[tuple[str, list[Hit]]]:
    """Files, those with the most and the rarest terms first, then with definitions, then with the most lines."""
    files: dict[str, list[Hit]] = {}
    for hit in hits:
        files.setdefault(hit.path, []).append(hit)
    seen = Counter(hit.term for mine in files.values() for hit in mine)

    def key(item: tuple[str, list[Hit]]) -> tuple[Any, ...]:
        path, mine = item
        defined = sum(bool(_DEFINITION.match(hit.text)) for hit in mine)
        rare = sum(1 / log2(2 + seen[term]) for term in sorted({hit.term for hit in mine}))
        return -rare, -min(defined, 5), -min(len(mine), 20), path.count("/"), path

    return sorted(files.items(), key=key)


def report(request: Request, asked: str, terms: tuple[str, ...], found: Found) -> str:
    """Everything that was found, by structure."""
    if request.agent == "plan":
        body = _plan(found)
    elif request.agent == "summary":
        body = _summary(asked, found)
    else:
        body = _evidence(found)
    told = (NOTICE, _searched(found), *_not_done(request, asked, terms, found), *body, _trouble(found), HOW_TO)
    return "\n\n".join(part for part in told if part)


# The parts of a report.


def _searched(found: Found) -> str:
    if not found.searched:
        return ""
    seen = Counter(hit.term for hit in found.hits)
    terms = list(dict.fromkeys(found.searched))
    if not found.hits:
        return f"Searched for {', '.join(f'`{term}`' for term in terms)}: no line has it."
    told = ", ".join(f"`{term}` ({_counted(seen[term])})" for term in terms)
    return f"Searched for {told}. The lines are in {_count(len({hit.path for hit in found.hits}), 'file')}."


def _counted(lines: int) -> str:
    return f"{'at least ' if lines >= HITS_A_TERM else ''}{_count(lines, 'line')}"


def _not_done(request: Request, asked: str, terms: tuple[str, ...], found: Found) -> Iterator[str]:
    """What was to be looked at and was not, and why."""
    offered = {tool.name for tool in request.tools}
    wanted = {name for name, _ in _searches(request.agent, asked, terms)}
    left = ", ".join(f"`{term}`" for term in terms if term not in found.searched)
    read = {path for path, _ in found.read}
    unread = ", ".join(path for path in _named(asked) if path not in read)
    if left and "Grep" not in offered:
        yield _without(request, f"Could not search for {left}", "Grep")
    elif left:
        yield f"Not searched for: {left}."
    if unread and "Read" not in offered:
        yield _without(request, f"Could not read {unread}", "Read")
    if "LS" in wanted and not offered & {"LS", "Glob"}:
        yield _without(request, "Could not list the workspace", "LS or Glob")


def _without(request: Request, what: str, needed: str) -> str:
    given = ", ".join(tool.name for tool in request.tools if tool.name in TOOLS)
    return f"{what}: that takes {needed}, and the tools it was given for the workspace are {given or 'none'}."


def _evidence(found: Found) -> Iterator[str]:
    files = ranked(found.hits)
    if files:
        yield "Evidence, best match first:\n" + "\n".join(f"- {_where(mine)}" for _, mine in files[:MAX_SHOWN])
    if len(files) > MAX_SHOWN:
        yield f"Beside these: {_count(len(files) - MAX_SHOWN, 'more file')}."
    yield from _outlines(found)
    if found.listed and not files:
        shown = "\n".join(f"- {name}" for name in found.listed[:50])
        yield f"In the workspace:\n{shown}"
    if not (files or found.read or found.listed):
        yield "Nothing was found." if found.looked else "What is in the workspace is not known: nothing of it was looked at."


def _plan(found: Found) -> Iterator[str]:
    files = ranked(found.hits)[:MAX_SHOWN]
    steps = [f"{number}. Look at {_where(mine)}" for number, (_, mine) in enumerate(files, 1)]
    tests = [path for path, _ in ranked(found.hits) if re.search(r"(^|[/_.])tests?([/_.]|$)", path)]
    if tests:
        steps.append(f"{len(steps) + 1}. Run what covers it: {', '.join(tests[:5])}")
    if steps:
        yield "A plan by structure alone, the places that match in the order of their rank:\n" + "\n".join(steps)
    else:
        yield "Nothing was found to plan with." if found.looked else "There is no plan: nothing of the workspace was looked at."
    yield from _outlines(found)


def _summary(asked: str, found: Found) -> Iterator[str]:
    texts = list(found.read) or [("what was given", asked)]
    for name, text in texts:
        lines = [line for _, line in _lines(text)]
        heads = [line.strip() for line in lines if _HEADING.match(line) or _DEFINITION.match(line)][:20]
        firsts = [sentence for block in "\n".join(lines).split("\n\n") if (sentence := _first_sentence(block))][:10]
        shown = "\n".join(f"- {line[:200]}" for line in heads or firsts) or "(It has no headings, definitions or long sentences to show.)"
        yield f"An extract of {name} ({_count(len(lines), 'line')}, {_count(sum(len(line.split()) for line in lines), 'word')}):\n{shown}"
    if found.hits:
        yield from _evidence(found._replace(read=()))


def _outlines(found: Found) -> Iterator[str]:
    for path, text in found.read:
        lines = _lines(text)
        heads = [f"- {path}:{number} {line.strip()[:160]}" for number, line in lines if _DEFINITION.match(line) or _HEADING.match(line)][:MAX_SHOWN]
        if lines:
            span = f"lines {lines[0][0]} to {lines[-1][0]}"
            yield "\n".join([f"Read {path}, {span}" + (", which has:" if heads else "."), *heads])


def _trouble(found: Found) -> str:
    return "What did not work:\n" + "\n".join(f"- {text}" for text in found.failed[:5]) if found.failed else ""


def _where(mine: list[Hit]) -> str:
    best = _best(mine)
    terms = ", ".join(dict.fromkeys(hit.term for hit in mine))
    return f"{best.path}:{best.line} {best.text[:160]} [{terms}; {_count(len({hit.line for hit in mine}), 'line')}]"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _best(mine: list[Hit]) -> Hit:
    """The line that defines something, or else holds the most terms, or else comes first."""
    terms = Counter(hit.line for hit in mine)
    return min(mine, key=lambda hit: (not _DEFINITION.match(hit.text), -terms[hit.line], hit.line))


def _lines(text: str) -> list[tuple[int, str]]:
    numbered = [(int(match["line"]), match["text"]) for match in _NUMBERED.finditer(text)]
    return numbered or list(enumerate(text.splitlines(), 1))


def _first_sentence(block: str) -> str:
    words = " ".join(block.split())
    return _SENTENCE.split(words, maxsplit=1)[0] if len(words) > 20 else ""


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:160]


# What to ask the tools.


def _searches(agent: str, asked: str, terms: tuple[str, ...]) -> list[Wanted]:
    wanted: list[Wanted] = [("Read", {"file_path": path}) for path in _named(asked)]
    if agent == "summary":
        return wanted
    search = {"output_mode": "content", "-n": True, "-i": True, "head_limit": HITS_A_TERM}
    wanted += [("Grep", {"pattern": _escaped(term), **search}) for term in terms]
    return wanted or [("LS", {"path": "."})]


def _named(asked: str) -> list[str]:
    return list(dict.fromkeys(path for path in _PATH.findall(asked) if "/" in path or "." in path[1:]))[:MAX_NAMED]


def _readings(found: Found) -> list[Wanted]:
    wanted: list[Wanted] = []
    for path, mine in ranked(found.hits)[:MAX_READ]:
        start = max(1, _best(mine).line - LINES_AROUND)
        wanted.append(("Read", {"file_path": path, "offset": start, "limit": 2 * LINES_AROUND + 1}))
    return wanted or ([] if found.read or found.listed else [("LS", {"path": "."}), ("Glob", {"pattern": "*"})])


def _escaped(term: str) -> str:
    return _SPECIAL.sub(r"\\\1", term)


# Reading and making messages.


def _made(request: Request) -> Iterator[tuple[ToolCall, ToolResult | None]]:
    parts: list[Part] = [part for message in request.messages for part in message.parts]
    results: Mapping[str, ToolResult] = {part.call_id: part for part in parts if isinstance(part, ToolResult)}
    for part in parts:
        if isinstance(part, ToolCall):
            yield part, results.get(part.call_id)


def _calling(request: Request, wanted: list[Wanted]) -> Response:
    turn = len(request.messages)
    calls = tuple(ToolCall(f"offline_{turn}_{number}", name, arguments) for number, (name, arguments) in enumerate(wanted))
    return Response(calls, "tool_calls", Tokens(), MODEL, 0.0)


def _saying(text: str) -> Response:
    return Response((TextPart(text),), "end", Tokens(), MODEL, 0.0)
