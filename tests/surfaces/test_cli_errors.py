"""Errors of the command line, and its exit codes."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.stores.memory import MemoryEventStore
from remit.app.reading import fast
from remit.catalog import OPERATIONS
from remit.domain.records.record import fields
from remit.errors import (
    Busy,
    Forbidden,
    Internal,
    LimitExceeded,
    RemitError,
    TimedOut,
    Unauthenticated,
)
from remit.surfaces.cli.main import main
from remit.surfaces.cli.output.result_pages import format_part
from tests.surfaces.cli_host import shop
from tests.surfaces.shell import Shell, served, serving


@pytest.mark.parametrize(
    ("argv", "code", "first"),
    [
        (("task", "show", "9"), 3, "error: There is no task 9."),
        (("task", "create", ""), 2, "error: TITLE: is blank; expected 1 to 256 characters."),
        (
            ("task", "create", "T", "--owner", "nobody-known"),
            2,
            "error: --owner: unknown agent 'nobody-known'. Available: build, ",
        ),
        (
            ("task", "create", "T", "--priority", "hgh"),
            2,
            "error: --priority: unknown value 'hgh'. Did you mean high? Available: urgent, high",
        ),
        (
            ("task", "create", "T", "--limits", "max_turns"),
            2,
            "error: --limits: is 'max_turns'; expected NAME=NUMBER",
        ),
        (
            ("task", "create", "T", "--limits", "max_turns=x"),
            2,
            "error: --limits: is 'max_turns=x'; expected NAME=NUMBER",
        ),
        (("task", "create", "T", "--set", 'a={"b"'), 2, "error: --set: is not valid JSON"),
        (("task", "create", "T", "--set", "=1"), 2, "error: --set: is '=1'; expected KEY=VALUE."),
        (("task", "create", "T", "--output", "a:b"), 2, "error: --output: has the kind 'b'"),
        (
            ("task", "create", "T", "--depends-on", "1:sometime"),
            2,
            "error: --depends-on, on: is 'sometime'",
        ),
        (
            ("task", "create", "T", "--depends-on", "1", "--depends-on", "99"),
            2,
            "error: --depends-on (no. 2): is 99, which does not exist",
        ),
        (
            ("task", "create", "T", "--limits", "max_turn=3"),
            2,
            "error: --limits, max_turn: is not a field here. Did you mean max_turns?",
        ),
        (
            ("task", "create", "T", "--cron", "daily"),
            2,
            "error: --cron: is 'daily'; expected five cron fields",
        ),
        (
            ("task", "create", "T", "--model", "gpt"),
            2,
            "error: --model: is 'gpt'; expected main, light, or provider:name.",
        ),
        (
            ("task", "create", "T", "--owner", "build", "--allow", "x" * 200),
            2,
            "error: --allow: is 200 characters long",
        ),
        (
            ("task", "create", "T", "--output", "a", "--output", ""),
            2,
            "error: --output (no. 2), name: is blank",
        ),
        (("task", "show", "x"), 2, "error: TASK: is 'x'; expected a task id such as 42"),
        (
            ("task", "create", "T", "--instructions", "@/no/such/file"),
            2,
            "error: --instructions: cannot read /no/such/file: no such file",
        ),
        (("task", "create", "T\ud800"), 2, "error: TITLE: contains a lone surrogate"),
        (("task", "resume", "1"), 4, "error: "),
        (("task", "waive", "1", "c9", "No."), 3, "error: "),
        (("guide", "show", "none"), 3, "error: There is no guide none."),
        (("agents", "show", "none"), 3, "error: Unknown agent none."),
        (
            ("task", "list", "--limit", "many"),
            2,
            "error: --limit: is 'many'; expected a whole number.",
        ),
        (("task", "list", "--cursor", "x"), 2, "error: --cursor: is not a cursor of this list"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(
    argv: tuple[str, ...], code: int, first: str
) -> None:
    with shop() as at:
        at.create("Here")
        said = at(*argv)
        assert (said.code, said.out) == (code, "")
        assert said.err.startswith(first)
        assert "Traceback" not in said.err
        as_json = at(*argv, "--json")
        assert (as_json.code, as_json.err) == (code, "")
        assert as_json.json["error"]["code"] in ("INVALID_PARAM", "NOT_FOUND", "CONFLICT")


@pytest.mark.parametrize("through_a_server", [False, True])
def test_a_refused_delegation_names_what_was_typed(tmp_path: Path, through_a_server: bool) -> None:
    """Programs that read JSON get the names of the wire."""
    at = Shell(tmp_path)
    assert at.remit("init").code == 0
    with serving(at) if through_a_server else nullcontext() as url:
        at = Shell(tmp_path, REMIT_URL=url or "")
        unknown = at.remit("run", "Work", "--agent", "nonsense")
        assert (unknown.code, _error_in(unknown.err)[:57]) == (
            2,
            "error: --agent: unknown agent 'nonsense'. Available: buil",
        )
        assert (
            at.remit("run", "Work", "--agent", "nonsense", "--json").json["error"]["details"][
                "fields"
            ][0]["field"]
            == "subagent_type"
        )
        too_short = at.remit("run", "Work", "--timeout", "0")
        expected = "error: --timeout: is 0.0; expected 0.001 to 31,536,000."
        assert (too_short.code, _error_in(too_short.err)) == (2, expected)
        (tmp_path / "work.json").write_text('["One", 2]')
        several = at.remit("parallel", "work.json")
        assert (several.code, several.out.splitlines()[-2:]) == (
            1,
            ["[2] refused", "  tasks[1].objective: is a number; expected text."],
        )


def _error_in(text: str) -> str:
    """The one error in what a command wrote; on a slow machine progress comes first."""
    (line,) = [line for line in text.splitlines() if line.startswith("error:")]
    return line


def test_a_hint_is_on_its_own_line_in_command_line_terms() -> None:
    with shop() as at:
        assert (
            at("task", "show", "9").err
            == "error: There is no task 9.\nUse remit task list or remit task history to find"
            " tasks.\n"
        )


def test_an_error_cannot_be_made_to_look_like_two() -> None:
    with shop() as at:
        assert (
            at("task", "create", "T", "--instructions", "@/no\nerror: all is lost").err.count("\n")
            == 1
        )


@pytest.mark.parametrize(
    "kind", [Unauthenticated, Forbidden, LimitExceeded, Busy, TimedOut, Internal]
)
def test_every_kind_of_error_has_its_exit_code(
    kind: type[RemitError], capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_options: dict[str, Any]) -> Any:
        raise kind("No.", hint="Try later.")

    assert main(["task", "list"], refuse) == kind.exit_code
    assert capsys.readouterr() == ("", "error: No.\nTry later.\n")


@pytest.mark.parametrize(
    ("argv", "guess"),
    [
        (("tsk",), "Did you mean: remit task?"),
        (("usage",), "See: remit --help"),
        (("task", "lst"), "Did you mean: remit task list?"),
        (("lst",), "Did you mean: remit task list or remit guide list or remit agents list?"),
        (("create",), "Did you mean: remit task create?"),
        (("task", "resource", "ad"), "Did you mean: remit task resource add?"),
        (("task", "zzz"), "See: remit task --help"),
        (("task", "list", "--ownr", "build"), "Did you mean: --owner?"),
        (("task", "create", "--titel=x"), "See: remit task create --help"),
        (("task", "create", "T", "--instuctions=x"), "Did you mean: --instructions?"),
        (("task", "list", "--zzz"), "See: remit task list --help"),
        (("task", "list", "--status", "runing"), "Did you mean running?"),
        (("task", "show"), "The following arguments are required: TASK."),
        (("task", "show", "1", "2"), "Unrecognized arguments: 2."),
        (("task", "list", "--owner"), "Argument --owner: expected one argument."),
        ((), "A command is missing."),
        (("task",), "A command is missing."),
        (("task", "--zzz"), "There is no option '--zzz' here."),
        (("completion", "csh"), "Available: bash, zsh, fish."),
        (("export", "everything", "x"), "Available: events, tasks."),
    ],
)
def test_wrong_use_prints_the_usage_and_a_suggestion(argv: tuple[str, ...], guess: str) -> None:
    with shop() as at:
        said = at(*argv)
        assert (said.code, said.out) == (2, "")
        assert guess in said.err
        assert said.err.startswith(
            ("usage: remit", "error: --status", "error: SHELL", "error: WHAT")
        )
        assert at(*argv, "--json").json["error"]["code"] == "INVALID_PARAM"


def test_files_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"\xff\xfe")
    with shop() as at:
        said = at("task", "create", "T", "--instructions", f"@{tmp_path / 'image'}")
        assert (said.code, "it is not text in UTF-8." in said.err) == (2, True)
        too_long = at("task", "create", "T", "--instructions", "-", stdin="x" * 2**21)
        assert (too_long.code, "at most" in too_long.err) == (2, True)


def test_a_system_error_is_printed_without_a_traceback() -> None:
    def full(_options: dict[str, Any]) -> Any:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", errors := _Kept())
        assert main(["task", "list"], full) == 1
    assert errors.text == "error: System error: [Errno 28] No space left on device.\n"


class _Kept:
    text = ""

    def write(self, text: str) -> None:
        self.text += text

    def isatty(self) -> bool:
        return False


def test_findings_of_the_doctor_set_the_exit_code() -> None:
    with shop() as at:
        at.create("One")
        assert isinstance(at.host.core.store, MemoryEventStore)
        at.host.core.store._data.tables["task"].clear()
        said = at("doctor", "--verify")
        assert (said.code, "fault task" in said.out) == (1, True)


LIST_MANY = """
import sys
from tests.surfaces.cli_host import shop
from remit.surfaces.cli.main import main
from remit.surfaces.cli.output.result_pages import format_part
with shop() as at:
    for number in range(300):
        at.create(f"Task {number} " + "x" * 200)
    sys.stderr.write("filled\\n")
    sys.exit(main(["task", "list", "--limit", "1000"], lambda options: at.host))
"""


def test_a_closed_pipe_is_not_an_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LIST_MANY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": "."},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    # Nothing is written before the reader is gone, so every write meets a closed pipe.
    process.stdout.close()
    assert process.stderr.read() == "filled\n"
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "argv", ["--help", "task list --help", "completion bash", "nonsense --json"]
)
def test_a_full_output_is_reported_without_a_traceback(argv: str) -> None:
    code = (
        f"import sys; from remit.surfaces.cli.main import main; sys.exit(main({argv.split()!r},"
        " None))"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=buffered,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "error: System error: [Errno 28] No space left on device.\n",
    )


def test_an_interrupt_is_quiet() -> None:
    def interrupted(_options: dict[str, Any]) -> Any:
        raise KeyboardInterrupt

    assert main(["task", "list"], interrupted) == 130


def test_doctor_says_which_variable_of_a_key_is_not_set(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.remit("init").code == 0
    (tmp_path / "home" / ".config" / "remit").mkdir(parents=True, exist_ok=True)
    settings = '[models.main]\nmodel = "anthropic:claude-x"\napi_key_env = "MY_KEY"\n'
    (tmp_path / "home" / ".config" / "remit" / "config.toml").write_text(settings)
    for name in ("LLM_API_KEY", "ANTHROPIC_API_KEY", "LLM_MODEL_ID", "MY_KEY"):
        shell.env.pop(name, None)
    said = shell.remit("doctor")
    assert (said.code, "fault MY_KEY is not set." in said.out) == (1, True), said
    shell.env["MY_KEY"] = "x"
    assert shell.remit("doctor").code == 0


def test_doctor_shows_each_field_of_a_model_with_its_origin(
    durable_url: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url, LLM_MEDIA="maybe", LLM_STREAM="no")
    assert shell.remit("init").code == 0
    user, workspace = tmp_path / "home/.config/remit/config.toml", tmp_path / ".remit/config.toml"
    user.parent.mkdir(parents=True, exist_ok=True)
    user.write_text(
        '[models.main]\nmodel = "m"\nbase_url = "http://h/v1"\napi = "responses"\nmedia = true\n'
        "parallel_tool_calls = false\nconcurrency = 2\n"
    )
    workspace.write_text('[models.main]\neffort = "medium"\nprice_input = 1\n')
    for name in ("LLM_API_KEY", "LLM_BASE_URL", "LLM_MODEL_ID"):
        shell.env.pop(name, None)
    said = shell.remit("doctor", "--json").json
    shown = {item["name"]: (item["value"], item["origin"]) for item in said["settings"]}
    fields = {
        "base_url": ("http://h/v1", str(user)),
        "concurrency": (2, str(user)),
        "api": ("responses", str(user)),
        "stream": (False, "LLM_STREAM"),
        "effort": ("medium", str(workspace)),
        "parallel_tool_calls": (False, str(user)),
        "media": (True, str(user)),
    }
    for tier in ("main", "light"):
        assert shown[f"models.{tier}"] == ("m at http://h/v1", str(user))
        found = {name: shown[name] for name in shown if name.startswith(f"models.{tier}.")}
        assert found == {f"models.{tier}.{name}": value for name, value in fields.items()}
    page = shell.remit("doctor").out
    assert "ignored setting LLM_MEDIA: expected true or false" in page
    assert f"ignored setting models.main.price_input in {workspace}, which must set base" in page


def test_doctor_needs_no_workspace_beside_a_database(durable_url: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, REMIT_DATABASE_URL=durable_url)
    assert shell.remit("task", "list").code == 0
    said = shell.remit("doctor", "--verify")
    assert (said.code, "Everything is consistent." in said.out) == (0, True), said
    assert not (tmp_path / ".remit").exists()


@pytest.mark.parametrize(
    ("command", "option"), [(("mcp",), "--tools"), (("serve", "--port", "0"), "--mcp-tools")]
)
def test_a_wrong_list_of_tools_is_reported_with_its_option(
    tmp_path: Path, command: tuple[str, ...], option: str
) -> None:
    said = Shell(tmp_path).remit(*command, option, "zz")
    assert (said.code, f"{option}: unknown tool or profile 'zz'" in said.err) == (2, True), said.err


BAD_READS = {
    "an empty session": (("session", "tasks", ""), "SESSION"),
    "a blank session": (("session", "tasks", " "), "SESSION"),
    "a long session": (("session", "tasks", "s" * 300), "SESSION"),
    "an empty label": (("task", "list", "--label", ""), "--label"),
    "a long label": (("task", "list", "--label", "l" * 65), "--label"),
    "a long creator": (("task", "list", "--parent-session", "s" * 300), "--parent-session"),
    "updates before the first": (("task", "updates", "1", "--after", "-5"), "--after"),
    "events before the first": (("task", "events", "1", "--after", "-5"), "--after"),
    "a huge number": (("task", "events", "1", "--after", str(2**60)), "--after"),
}


@pytest.mark.parametrize("wrong", BAD_READS)
def test_a_command_that_only_reads_refuses_what_others_refuse(wrong: str, tmp_path: Path) -> None:
    at = Shell(tmp_path)
    assert (at.remit("init").code, at.remit("task", "create", "Work").code) == (0, 0)
    typed, place = BAD_READS[wrong]
    said = at.remit(*typed)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {place}: ")


def test_only_fields_of_the_catalog_are_read_fast() -> None:
    for name, known in fast.FIELDS.items():
        assert known <= fields(OPERATIONS[name].input).keys(), name


def test_a_time_limit_may_have_a_fraction(tmp_path: Path) -> None:
    at = Shell(tmp_path)
    assert at.remit("init").code == 0
    assert at.remit("task", "create", "Work", "--timeout", "1.5").code == 0
    assert '"timeout_seconds": 1.5' in at.remit("task", "show", "1", "--json").out
    said = at.remit("task", "create", "Work", "--timeout", "soon")
    assert "error: --timeout: is 'soon'; expected a number of seconds." in said.err


def test_advice_of_a_server_names_the_command(tmp_path: Path) -> None:
    at = Shell(tmp_path)
    assert (at.remit("init").code, at.remit("task", "create", "Work").code) == (0, 0)
    assert at.remit("task", "cancel", "1").code == 0
    local = at.remit("task", "pause", "1")
    with served(at, "--no-worker") as server:
        at.env |= {"REMIT_URL": server.url, "REMIT_TOKEN": server.token}
        remote = at.remit("task", "pause", "1")
    assert remote.err.endswith("Do it again as a new task with: remit task rerun 1\n")
    assert remote.err.split() == local.err.split()


def test_an_interrupted_call_is_shown_in_a_transcript() -> None:
    call = {"type": "tool_result", "call_id": "1", "name": "Bash", "status": "unknown", "text": ""}
    assert format_part(call) == "(interrupted; its outcome is unknown)"
    assert format_part(call | {"text": "Half of it."}) == "Half of it."
