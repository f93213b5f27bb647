"""The report of the offline model on its search results."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import starmap

from remit.adapters.models.offline_search import (
    DEFINITION,
    HITS_A_TERM,
    SUMMARY,
    Hit,
    SearchResults,
    best_hit,
    first_calls,
    named_paths,
    rank_files,
)
from remit.domain.agents.agent import TOOLS
from remit.domain.llm.messages import Request
from remit.domain.llm.selection import HOW_TO_SET_A_MODEL

MAX_SHOWN = 12
FEW_HEADS = 3
"""With fewer headings and definitions, an extract also shows sentences."""
HOW_TO = f"For a reasoned answer, configure a model. {HOW_TO_SET_A_MODEL}"

_NUMBERED = re.compile(r"^[ \t]*+(?P<line>\d{1,7})[\t→:|] ?(?P<text>.*)$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+\S")
_SENTENCE = re.compile(r"(?<=[.!?。])\s+")
_TEST_PATH = re.compile(r"(^|[/_.])tests?([/_.]|$)")


def report(request: Request, asked: str, terms: tuple[str, ...], found: SearchResults) -> str:
    """Return a report on all search results."""
    sections = (
        _describe_searches(found),
        *_describe_gaps(request, asked, terms, found),
        *_body(request.agent, asked, found),
        _list_below("Failed calls:", found.failed[:5]),
        HOW_TO,
    )
    return "\n\n".join(filter(None, sections))


def _body(agent: str, asked: str, found: SearchResults) -> Iterator[str]:
    """Return the sections that answer the kind of request that an agent has."""
    write = _BODIES.get(agent, _evidence)
    return write(found, asked)


def _describe_searches(found: SearchResults) -> str:
    """Describe the searches, and how many lines and files have each term."""
    if not found.searched:
        return ""
    terms = list(dict.fromkeys(found.searched))
    if not found.hits:
        return f"Searched for {_quote_all(terms)} and found no match."
    seen = Counter(hit.term for hit in found.hits)
    counts = ", ".join(f"`{term}` ({_count_lines(seen[term])})" for term in terms)
    files = {hit.path for hit in found.hits}
    return f"Searched for {counts}. The lines are in {_count(len(files), 'file')}."


def _quote_all(terms: list[str]) -> str:
    return ", ".join(map("`{}`".format, terms))


def _count_lines(lines: int) -> str:
    """Return a number of lines; a search stops at a maximum."""
    if lines >= HITS_A_TERM:
        return f"at least {_count(lines, 'line')}"
    return _count(lines, "line")


def _describe_gaps(
    request: Request, asked: str, terms: tuple[str, ...], found: SearchResults
) -> Iterator[str]:
    """Yield searches, reads and listings that were not made, and why."""
    offered = {tool.name for tool in request.tools}
    left = _quote_all([term for term in terms if term not in found.searched])
    if left:
        yield _describe_unsearched(request, offered, left)
    if "Read" not in offered:
        yield from _describe_unread(request, asked, found)
    wanted = dict(first_calls(request.agent, asked, terms))
    if "LS" in wanted and offered.isdisjoint({"LS", "Glob"}):
        yield _missing_tool(request, "Could not list the workspace", "LS or Glob")


def _describe_unsearched(request: Request, offered: Collection[str], left: str) -> str:
    """Say that terms were not searched for, or that they could not be."""
    if "Grep" in offered:
        return f"Not searched for: {left}."
    return _missing_tool(request, f"Could not search for {left}", "Grep")


def _describe_unread(request: Request, asked: str, found: SearchResults) -> Iterator[str]:
    """Yield which of the named files could not be read, if there are any."""
    read = dict(found.read)
    unread = ", ".join(path for path in named_paths(asked) if path not in read)
    if unread:
        yield _missing_tool(request, f"Could not read {unread}", "Read")


def _missing_tool(request: Request, what: str, needed: str) -> str:
    """Say which tool was needed, and which ones were given."""
    given = ", ".join(tool.name for tool in request.tools if tool.name in TOOLS)
    return f"{what}: this needs {needed}. Granted workspace tools: {given or 'none'}."


def _evidence(found: SearchResults, _asked: str = "") -> Iterator[str]:
    """Yield the best places, the outlines of read files, and the workspace without places."""
    files = rank_files(found.hits)
    places = [_describe_place(hits) for _, hits in files]
    yield _list_below("Evidence, best match first:", places[:MAX_SHOWN])
    if len(files) > MAX_SHOWN:
        yield f"In addition: {_count(len(files) - MAX_SHOWN, 'more file')}."
    yield from _outlines(found)
    if not files:
        yield _list_below("In the workspace:", found.listed[:50])
    if not found.looked:
        yield "The workspace was not examined."
    elif not any((files, found.read, found.listed)):
        yield "Nothing was found."


def _plan(found: SearchResults, _asked: str) -> Iterator[str]:
    """Yield a plan that visits the best places and runs their tests, and the outlines."""
    steps = _plan_steps(found)
    if steps:
        numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
        yield (
            "A plan by structure alone, the places that match in the order of their rank:\n"
            f"{numbered}"
        )
    elif found.looked:
        yield "Nothing was found to plan with."
    else:
        yield "There is no plan: the workspace was not examined."
    yield from _outlines(found)


def _plan_steps(found: SearchResults) -> list[str]:
    """Return the steps of a plan: places to look at, then tests to run."""
    files = rank_files(found.hits)
    steps = [f"Look at {_describe_place(hits)}" for _, hits in files[:MAX_SHOWN]]
    tests = [path for path, _ in files if _TEST_PATH.search(path)]
    if tests:
        steps.append(f"Run what covers it: {', '.join(tests[:5])}")
    return steps


def _summary(found: SearchResults, asked: str) -> Iterator[str]:
    """Yield an extract of each read file, or of the request itself."""
    texts = found.read or (("what was given", asked),)
    yield from starmap(_extract, texts)
    if found.hits:
        yield from _evidence(found._replace(read=()))


def _extract(name: str, text: str) -> str:
    """Return the headings and definitions of a text; with few of them, also its first
    sentences.
    """
    lines = [line for _, line in _number_lines(text)]
    shown = [line.strip() for line in lines if _is_head(line)][:20]
    if len(shown) < FEW_HEADS:
        shown = _first_texts(lines)
    extract = _bullets(line[:200] for line in shown)
    if not extract:
        extract = "(It has no headings, definitions or long sentences to show.)"
    words = " ".join(lines).split()
    size = f"{_count(len(lines), 'line')}, {_count(len(words), 'word')}"
    return f"An extract of {name} ({size}):\n{extract}"


def _first_texts(lines: Sequence[str]) -> list[str]:
    """Return the headings and the first sentence of each of the first paragraphs."""
    shown: list[str] = []
    for block in "\n".join(lines).split("\n\n"):
        heads = [line.strip() for line in block.splitlines() if _is_head(line)]
        text = "\n".join(line for line in block.splitlines() if not _is_head(line))
        shown += [*heads, _first_sentence(text)]
    return list(filter(None, shown))[:10]


def _outlines(found: SearchResults) -> Iterator[str]:
    """Yield the headings and definitions of each read file."""
    return (_outline(path, _number_lines(text)) for path, text in found.read if text)


def _outline(path: str, lines: list[tuple[int, str]]) -> str:
    """Return the lines that were read, with their headings and definitions."""
    heads = [f"- {path}:{number} {line.strip()[:160]}" for number, line in lines if _is_head(line)]
    first, last = lines[0][0], lines[-1][0]
    span = f"lines {first} to {last}"
    if first == last:
        span = f"line {first}"
    if not heads:
        return f"remit read {span} of {path}."
    title = f"remit read {span} of {path} and found these headings and definitions:"
    return "\n".join([title, *heads[:MAX_SHOWN]])


def _describe_place(hits: list[Hit]) -> str:
    """Return the best line of a file, with the terms and the number of lines that have them."""
    best = best_hit(hits)
    terms = ", ".join(dict.fromkeys(hit.term for hit in hits))
    lines = _count(len({hit.line for hit in hits}), "line")
    return f"{best.path}:{best.line} {best.text[:160]} [{terms}; {lines}]"


def _list_below(title: str, lines: Collection[str]) -> str:
    """Return lines as a list below a title; empty without lines."""
    if not lines:
        return ""
    return f"{title}\n{_bullets(lines)}"


def _bullets(lines: Iterable[str]) -> str:
    """Return lines as a list in Markdown."""
    return "\n".join(map("- {}".format, lines))


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}s"


def _is_head(line: str) -> bool:
    """Return True for a heading or a definition."""
    return bool(_HEADING.match(line) or DEFINITION.match(line))


def _number_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines of a file with their numbers, which the text may have already."""
    numbered = [(int(match["line"]), match["text"]) for match in _NUMBERED.finditer(text)]
    return numbered or list(enumerate(text.splitlines(), 1))


def _first_sentence(block: str) -> str:
    """Return the first sentence of a paragraph; empty if the paragraph is short."""
    words = " ".join(block.split())
    if len(words) <= 20:
        return ""
    return _SENTENCE.split(words, maxsplit=1)[0]


_BODIES = {"plan": _plan, SUMMARY: _summary}
"""Writes the main sections of agents that do not report evidence."""
