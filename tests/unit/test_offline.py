"""The model that is none: it searches and reads with real tools' shapes, reports with places,
and says what it is.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from remit.adapters.models.offline import NOTICE, OfflineGateway, reply, search_terms
from remit.domain.llm.messages import Message, Request, Response, Tool, ToolResult, user

FILES = {
    "src/door.py": [
        "import os",
        "",
        "class FrontDoor:",
        "    def check_token(self, token):",
        "        return token == self.secret",
    ],
    "src/window.py": ["# the token is not used here", "x = 1"],
    "tests/test_door.py": [
        "from src.door import FrontDoor",
        "def test_check_token():",
        "    assert FrontDoor()",
    ],
    "notes.md": [
        "# Notes",
        "",
        "The door is checked before anything else happens. More words.",
        "",
        "## Later",
        "",
        "Nothing yet.",
    ],
}
TOOLS = tuple(Tool(name, "", {}) for name in ("Grep", "Read", "LS", "Glob"))


def use(name: str, arguments: Mapping[str, Any]) -> ToolResult:
    """The results of an agent's tools for FILES."""
    match name:
        case "Grep":
            needle = str(arguments["pattern"]).replace("\\", "").lower()
            lines = [
                f"{path}:{n}:{line}"
                for path, text in FILES.items()
                for n, line in enumerate(text, 1)
                if needle in line.lower()
            ]
            return ToolResult(
                "", name, "\n".join(lines[: arguments["head_limit"]]) or "No matches found"
            )
        case "Read":
            found = FILES.get(arguments["file_path"])
            if found is None:
                return ToolResult("", name, "There is no such file.", is_error=True)
            first = arguments.get("offset", 1)
            return ToolResult(
                "",
                name,
                "\n".join(f"{n:6}\t{line}" for n, line in enumerate(found, 1) if n >= first),
            )
        case _:
            return ToolResult("", name, "\n".join(FILES))


def run(
    asked: str, agent: str = "explore", tools: tuple[Tool, ...] = TOOLS
) -> tuple[Response, list[str]]:
    messages, used = [user(asked)], list[str]()
    for _ in range(10):
        answer = reply(Request("offline", "", tuple(messages), tools, agent=agent))
        if not answer.calls:
            return answer, used
        used += [call.name for call in answer.calls]
        results = [
            use(call.name, call.arguments)._replace(call_id=call.call_id) for call in answer.calls
        ]
        messages += [answer.message, Message("tool", tuple(results))]
    raise AssertionError("it never ends")


def test_it_finds_places_over_several_turns_and_says_what_it_is() -> None:
    answer, used = run("Find out how `check_token` works in the FrontDoor")
    assert answer.text.startswith(NOTICE)
    assert (
        "src/door.py:3 class FrontDoor:" in answer.text
        or "src/door.py:4 def check_token" in answer.text
    )
    assert answer.text.index("door.py") < answer.text.index("test_door.py")
    assert {"Grep", "Read"} <= set(used)
    assert (answer.stop, answer.model, answer.cost) == ("end", "offline", 0.0)


def test_a_sentence_says_what_was_read() -> None:
    answer, _ = run("Look at notes.md")
    found = "remit read lines 1 to 7 of notes.md and found these headings and definitions:"
    assert f"{found}\n- notes.md:1 # Notes\n- notes.md:5 ## Later" in answer.text


def test_it_says_the_same_each_time() -> None:
    assert run("Where is the token checked?") == run("Where is the token checked?")


def test_a_plan_is_a_list_of_places() -> None:
    answer, _ = run("Rename check_token", "plan")
    assert "1. Look at src/door.py:4" in answer.text
    assert "Run what covers it: tests/test_door.py" in answer.text


def test_a_summary_is_an_extract() -> None:
    answer, used = run("Summarize notes.md", "summary")
    assert used == ["Read"]
    sentence = "The door is checked before anything else happens."
    assert f"- # Notes\n- {sentence}\n- ## Later" in answer.text
    given, used = run(
        "Summarize this.\n\nThe first thing is long enough to be shown. The rest is not.", "summary"
    )
    assert used == []
    assert "- The first thing is long enough to be shown." in given.text


@pytest.mark.parametrize(
    "asked", ["", "Do it", "你好", "Look at missing.py", "Find `nowhere_at_all`"]
)
def test_it_always_ends_with_a_report(asked: str) -> None:
    answer, _ = run(asked)
    assert answer.text.startswith(NOTICE)
    assert run(asked, tools=())[0].text.startswith(NOTICE)


def test_failed_searches_are_reported() -> None:
    assert "Failed calls:\n- Read There is no such file." in run("Look at missing.py")[0].text


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("general", "The workspace was not examined"),
        ("plan", "There is no plan"),
        ("summary", "An extract of what was given"),
    ],
)
def test_an_agent_without_search_tools_does_not_report_an_empty_workspace(
    agent: str, told: str
) -> None:
    tools = tuple(Tool(name, "", {}) for name in ("Edit", "Bash", "get_task"))
    answer, used = run("How does `check_token` in src/door.py work?", agent, tools)
    assert used == []
    assert told in answer.text
    assert (
        "Could not read src/door.py: this needs Read. Granted workspace tools: Edit, Bash."
        in answer.text
    )
    assert ("Could not search for `check_token`: this needs Grep. " in answer.text) == (
        agent != "summary"
    )
    assert "Searched for" not in answer.text
    assert "Nothing was found" not in answer.text
    assert (
        "Could not list the workspace: this needs LS or Glob. Granted workspace tools: none."
        in run("Do it", tools=())[0].text
    )


@pytest.mark.parametrize("agent", ["explore", "plan"])
def test_a_search_that_failed_found_nothing_out(
    agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = ToolResult("", "Grep", "Grep was stopped after 20 seconds.", is_error=True)
    monkeypatch.setattr(f"{__name__}.use", lambda name, _: failed._replace(name=name))
    answer, used = run("Find `check_token`", agent)
    assert set(used) == {"Grep", "LS", "Glob"}
    assert "Not searched for: `check_token`." in answer.text
    assert "- Grep Grep was stopped after 20 seconds." in answer.text
    assert "Searched for" not in answer.text
    assert "Nothing was found" not in answer.text


def test_without_a_search_what_can_be_listed_is_listed() -> None:
    answer, used = run("Find `check_token`", tools=TOOLS[2:])
    assert set(used) == {"LS", "Glob"}
    assert "Could not search for `check_token`" in answer.text
    assert "In the workspace:\n- src/door.py" in answer.text


def test_more_lines_than_were_asked_for_are_not_counted_as_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FILES, "many.txt", ["needle"] * 200)
    assert (
        "Searched for `needle` (at least 100 lines). The lines are in 1 file."
        in run("Find `needle`")[0].text
    )


def test_only_tools_that_are_offered_are_used() -> None:
    assert set(run("Find `check_token`", tools=(TOOLS[0],))[1]) == {"Grep"}


def test_quoted_words_and_names_come_before_others() -> None:
    terms = search_terms(
        "Please find the cookies in `load config` of read_file and HttpServer for the NASA"
    )
    assert terms == ("load config", "read_file", "HttpServer", "cookies", "load", "config")


@pytest.mark.parametrize(
    ("asked", "terms"),
    [
        ("Where is add defined?", ("add",)),
        ("find the log of the run", ("log", "run")),
        ("Explain it to me", ()),
    ],
)
def test_short_words_count_and_words_of_asking_do_not(asked: str, terms: tuple[str, ...]) -> None:
    assert search_terms(asked) == terms


async def test_as_a_gateway_it_answers_by_rule() -> None:
    gateway, request = OfflineGateway(), Request("offline", "", (user("Find `x1`"),))
    assert (await gateway.request(request)).text == reply(request).text
    await gateway.close()


def test_headings_of_remit_are_not_searched_for() -> None:
    messages = (
        user("Where is the `door`?"),
        user("[Task Update: Message]\nLook for `window` too."),
    )
    answer = reply(Request("offline", "", messages, TOOLS, agent="explore"))
    patterns = [call.arguments["pattern"] for call in answer.calls if call.name == "Grep"]
    assert (patterns[:2], "Message" in patterns) == (["door", "window"], False)
