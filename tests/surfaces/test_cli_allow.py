"""`--allow` adds to what an agent has, and says so where it cannot."""

from pathlib import Path

import pytest

from remit.domain.agents.agent import READING
from tests.surfaces.cli_host import shop
from tests.surfaces.shell import Shell, serving

FILE = (
    "---\nname: lean\ndescription: Little.\ntools: Read\ndisallowedTools: Bash\n---\nYou are"
    " lean.\n"
)


@pytest.mark.parametrize(
    ("owner", "typed", "allowed"),
    [
        ("general", "Edit,Bash", [*READING, "Edit", "Bash"]),
        ("general", "bash, READ,todo_write", [*READING, "Bash"]),
        ("build", "lookup,read_page", [*READING, "Task", "lookup", "read_page"]),
        ("explore", "Read,grep", [*READING]),
    ],
)
def test_allow_adds_to_the_tools_of_the_agent(owner: str, typed: str, allowed: list[str]) -> None:
    with shop() as at:
        assert at("task", "create", "Work", "--owner", owner, "--allow", typed, "--json").json[
            "task"
        ]["tools"] == {"allow": allowed}
        at("task", "create", "Part", "--owner", "build")
        made = at("task", "subtask", "2", "Piece", "general", "--allow", "task", "--json").json[
            "task"
        ]
        assert made["tools"] == {"allow": [*READING, "Task"]}


def test_a_possible_function_name_is_accepted_with_a_note() -> None:
    with shop() as at:
        said = at(
            "task", "create", "Work", "--owner", "general", "--allow", "WebFetch,read,\x1b[2Jlook"
        )
        assert (
            "WebFetch, look: not a built-in tool; it works only if workers have a function of"
            " that name.\n" in said.err
        )
        assert (
            "own"
            not in at("task", "create", "Work", "--owner", "general", "--allow", "Read,edit").err
        )
        shown = at("task", "show", "2").out
        assert "\n  tools only LS, Glob, Grep, Read, TodoWrite, Edit\n" in shown


@pytest.mark.parametrize(
    ("owner", "typed", "told"),
    [
        ("general", "Read,Bsah", "--allow: unknown tool 'Bsah'. Did you mean Bash?"),
        ("general", "multiedits", "--allow: unknown tool 'multiedits'. Did you mean MultiEdit?"),
        (
            "explore",
            "bash,Read",
            (
                "--allow: names Bash, which explore cannot have: it is always read-only;"
                " expected some of LS, "
            ),
        ),
        (
            "Plan",
            "lookup",
            (
                "--allow: names lookup, which plan cannot have: it is always read-only;"
                " expected some of LS, "
            ),
        ),
        (
            "general",
            "",
            "--allow: names no tool; expected tool names separated by commas, such as Edit,Bash.",
        ),
        (
            "general",
            " , ",
            "--allow: names no tool; expected tool names separated by commas, such as Edit,Bash.",
        ),
        (
            None,
            "Bash",
            ("--allow: needs an agent; expected --owner as well."),
        ),
    ],
)
def test_tools_that_cannot_be_allowed_are_refused_by_name(
    owner: str | None, typed: str, told: str
) -> None:
    with shop() as at:
        typed_owner = ("--owner", owner) if owner else ()
        said = at("task", "create", "Work", *typed_owner, "--allow", typed)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"error: {told}")
        assert at("task", "list", "--json").json["tasks"] == []
        if owner:
            assert at("run", "Work", "--agent", owner, "--allow", typed) == said


def test_run_adds_tools_in_a_folder_without_a_workspace(tmp_path: Path) -> None:
    (tmp_path / "kiln.py").write_text("def fire(kiln):\n    return 'hot'\n")
    at = Shell(tmp_path)
    said = at.remit("run", "Where is fire defined?", "--allow", "edit,write")
    assert (
        said.code,
        said.out.startswith("No model is configured, and this task needs Write, Edit."),
    ) == (1, True)
    assert (
        '"tools": {"allow": ["LS", "Glob", "Grep", "Read", "TodoWrite", "Edit", "Write"]}'
        in at.remit("task", "show", "1", "--json").out
    )


def test_the_agents_are_those_of_the_server_that_is_named(tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / ".remit" / "agents").mkdir(parents=True)
    (there / ".remit" / "agents" / "lean.md").write_text(FILE)
    token = Shell(there).remit("token", "show").out.strip()
    with serving(Shell(there)) as url:
        (tmp_path / "here").mkdir()
        at = Shell(tmp_path / "here", REMIT_URL=url, REMIT_TOKEN=token)
        said = at.remit("task", "create", "Work", "--owner", "lean", "--allow", "edit", "--json")
        assert '"tools": {"allow": ["Read", "Edit"]}' in said.out
        banned = at.remit("run", "Work", "--agent", "lean", "--allow", "bash")
        told = (
            "--allow: names Bash, which lean cannot have: its file bans that; expected other tools,"
            " or another agent."
        )
        assert (banned.code, told in banned.err) == (2, True)


def test_run_says_why_bash_is_not_available(tmp_path: Path) -> None:
    """On a machine without bubblewrap: nothing is on the path."""
    refused = Shell(tmp_path, PATH="").remit("run", "List the files", "--allow", "bash")
    assert refused.code == 1
    assert (
        "Bash is not available: this machine has no sandbox (bubblewrap is not installed)"
        in refused.out + refused.err
    )
    assert "allow_unsandboxed" in refused.out + refused.err
    allowed = Shell(tmp_path, PATH="", REMIT_ALLOW_UNSANDBOXED="true").remit(
        "run", "List the files", "--allow", "bash"
    )
    assert allowed.out.startswith("No model is configured, and this task needs Bash."), (
        "the sandbox is not what is missing now"
    )


NO_MODEL, SEARCHED = "No model is configured", "No language model was used"


@pytest.mark.parametrize(
    ("tools", "code", "told"),
    [
        ("Edit", 1, NO_MODEL),
        ("Edit,Task", 1, NO_MODEL),
        ("Task,edit", 1, NO_MODEL),
        ("Write,Edit,Bash,Task", 1, NO_MODEL),
        ("MultiEdit", 1, NO_MODEL),
        ("Grep", 0, SEARCHED),
        ("Task", 0, SEARCHED),
        ("Read,Task", 0, SEARCHED),
    ],
)
def test_a_tool_that_writes_needs_a_model_also_where_edits_are_allowed(
    tmp_path: Path, durable_url: str, tools: str, code: int, told: str
) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    assert shell.remit("init", "--allow-edits").code == 0
    said = shell.remit("run", "Mend the typo", "--allow", tools)
    assert (said.code, told in said.out + said.err) == (code, True), said


def test_denied_tools_are_read_like_allowed_ones(tmp_path: Path) -> None:
    at = Shell(tmp_path)
    assert at.remit("init").code == 0
    create = ("task", "create", "Work", "--owner", "general")
    wrong = at.remit(*create, "--deny", "Reed")
    assert (wrong.code, "--deny: unknown tool 'Reed'. Did you mean Read?" in wrong.err) == (2, True)
    empty = at.remit(*create, "--deny", "")
    assert "--deny: names no tool; expected tool names separated by commas" in empty.err
    assert at.remit(*create, "--deny", "read").code == 0
    assert at.remit("task", "show", "1", "--json").json["tools"]["deny"] == ["Read"]
