"""Settings: where the workspace is, the values in force, and the origin of each value.

Later wins: the default, `.remit/config.toml`, the user's config, the environment (`REMIT_…`), an
explicit option. Nothing is imported here that would slow a command down.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from remit.adapters.gitignore import keep_gitignore
from remit.errors import NotFound, Unauthenticated, invalid
from remit.home import home_folder

if TYPE_CHECKING:  # few commands ask a model
    from remit.domain.llm.selection import Choices

FOLDER = ".remit"
KNOWN: dict[str, tuple[Any, str]] = {
    "database_url": (None, "The store. Default: the SQLite file of the workspace."),
    "url": (None, "The URL of a remit server to use instead of opening the store."),
    "token": (
        None,
        "The operator's token. Default: the token of the workspace, created on first use.",
    ),
    "host": ("127.0.0.1", "The address that `remit serve` listens on."),
    "port": (8420, "The port that `remit serve` listens on; 0 picks a free port."),
    "hosts": (
        None,
        "Additional `host:port` names of the server, separated by commas.",
    ),
    "mcp_tools": (
        "standard",
        "The tools that MCP clients see: `core`, `standard`, `all`, or names separated by commas.",
    ),
    "concurrency": (8, "How many runs a worker process executes at once."),
    "heartbeat_seconds": (
        10.0,
        "How long a worker may miss heartbeats before others take over its runs.",
    ),
    "progress_seconds": (
        5.0,
        ("How often a call that waits for a task repeats the task's progress."),
    ),
    "fleet_concurrency": (0, "How many runs all workers execute at once; 0 for no limit."),
    "log_format": (
        "text",
        "The log format of `remit worker` and `remit serve`: `text`, or `json` lines.",
    ),
    "scheduler.cron": ("0 6-21 * * *", "When scheduled tasks get their next run."),
    "scheduler.timezone": (
        None,
        "The time zone of cron expressions, such as Europe/Berlin. Default: this machine's.",
    ),
    "tool_calls": (64, "How many tools a model may call in one response."),
    "allow_unsandboxed": (
        False,
        (
            "Allow agents with Bash to run commands without the bubblewrap sandbox. By default they"
            " are refused if there is no sandbox."
        ),
    ),
    "sandbox.read_only": (
        (),
        (
            "Additional folders that Bash commands may read, such as `~/.cache/pip`; in the"
            " environment, separated by colons."
        ),
    ),
    "sandbox.network": (False, "Let Bash commands use the network."),
    "allow_edits": (
        False,
        (
            "Let `build` and `general` change workspace files and run sandboxed commands without a"
            " grant in each call. In a workspace file it takes effect once `remit init"
            " --allow-edits` has confirmed it on this machine."
        ),
    ),
    "runner": (None, "A runner to use instead of remit's own agents, as module:name."),
    "agents": (
        {},
        (
            "A table for each agent, such as `[agents.general]`: `tools` (a list), `model`,"
            " `effort`, `disabled` (true), `concurrency` (in the fleet)."
        ),
    ),
}
"""Every setting with its default and description."""
_COMMENTS = r"(?:[ \t]*(?:#[^\x00-\x08\x0a-\x1f\x7f]*)?(?:\n|$))*"
"""Text in TOML that sets nothing."""
SECRET = ("token",)
TABLES = {
    "agents": {"tools": list, "model": str, "effort": str, "disabled": bool, "concurrency": int}
}
"""Settings that are tables of tables, with the type of each inner value.

Only files have them, and a later file changes single values.
"""
PERSONAL = ("url", "token", "runner", "allow_unsandboxed", "sandbox.read_only", "sandbox.network")
"""Settings that a workspace file may not set: someone else's folder could send the token elsewhere
or run code.
"""
GROUPS = {"scheduler": "cron and timezone", "sandbox": "read_only and network"}
"""Tables of single settings, and what they contain."""
SWITCHES = ("allow_unsandboxed", "allow_edits", "sandbox.network")
"""Settings that are true or false."""
CHOICES = {
    "log_format": ("text", "json"),
    "agents.effort": ("none", "low", "medium", "high", "xhigh", "max"),
}
"""The values of settings that have few."""
NUMBERS: dict[str, tuple[type[int] | type[float], float, float, str]] = {
    "port": (int, 0, 65535, "a port: a number from 0 to 65535"),
    "concurrency": (int, 1, 10_000, "a whole number from 1 to 10,000"),
    "heartbeat_seconds": (float, 0.2, 3600, "a number of seconds from 0.2 to 3,600"),
    "progress_seconds": (float, 0.05, 10, "a number of seconds from 0.05 to 10"),
    "fleet_concurrency": (int, 0, 1_000_000, "a whole number up to 1,000,000, 0 for no limit"),
    "tool_calls": (int, 1, 10_000, "a whole number from 1 to 10,000"),
    "agents.concurrency": (int, 0, 1_000_000, "a whole number up to 1,000,000, 0 for no limit"),
}


class Setting(NamedTuple):
    """A value and its origin."""

    value: Any
    origin: str


class Settings(NamedTuple):
    """The settings in force."""

    workspace: Path | None
    values: dict[str, Setting]
    unknown: tuple[str, ...]
    choose: "Callable[[], Choices]"

    def get(self, name: str) -> Any:
        """Return the value of a setting."""
        return self.values[name].value

    @property
    def models(self) -> "Choices":
        """The model of each tier."""
        return self.choose()

    @property
    def folder(self) -> Path:
        """The `.remit` folder, which may not exist yet; raises if it cannot be created."""
        if self.workspace is None:
            raise NotFound(
                "No workspace found here or in a parent folder.",
                hint="Create one with: `remit init`",
            )
        self.check_workspace()
        return self.workspace / FOLDER

    @property
    def root(self) -> Path:
        """The folder that relative paths belong to: the workspace, or the current folder."""
        return self.workspace or Path.cwd()

    def check_workspace(self) -> None:
        """Refuse a named workspace that is not a folder: the name may be mistyped."""
        if self.workspace is not None and not self.workspace.is_dir():
            hint = f"Check its name, or create it with: {self._init}"
            raise NotFound(f"The folder {self.workspace} does not exist.", hint=hint)

    @property
    def has_workspace(self) -> bool:
        """True if the workspace that was found or named exists."""
        return self.workspace is not None and (self.workspace / FOLDER).is_dir()

    @property
    def _init(self) -> str:
        from remit.surfaces.text.printed_commands import option_with_value

        return f"`remit init {option_with_value('--workspace', str(self.workspace))}`"

    @property
    def database_url(self) -> str:
        """The URL of the store: the setting, or the file of the workspace, which must exist."""
        self.check_workspace()
        if url := self.get("database_url"):
            return str(url)
        folder = self.folder
        if not folder.is_dir():
            raise NotFound(
                f"There is no workspace in {self.workspace}.", hint=f"Create one with: {self._init}"
            )
        return f"sqlite:///{folder / 'remit.db'}"


_NO_OPTIONS: Mapping[str, Any] = {}


def load(
    workspace: Path | str | None = None,
    options: Mapping[str, Any] = _NO_OPTIONS,
    env: Mapping[str, str] = os.environ,
) -> Settings:
    """Load the settings for a folder; explicit options override everything else."""
    named = workspace or env.get("REMIT_WORKSPACE")
    root = Path(named).absolute() if named else find_workspace(Path.cwd())
    values = {name: Setting(default, "default") for name, (default, _) in KNOWN.items()}
    unknown: list[str] = []
    models: dict[bool, tuple[str, dict[str, Any]]] = {True: ("", {}), False: ("", {})}
    for path in _files(root, env):
        of_workspace = root is not None and path.parent == root / FOLDER
        found = _read(path)
        if isinstance(found.get("models"), dict):
            models[of_workspace] = str(path), found.pop("models")
        unknown += _apply_file(values, found, path, env, of_workspace=of_workspace)
    for name in KNOWN.keys() - TABLES.keys():
        _apply_variable(values, name, env)
        _apply_option(values, name, options)

    def choices() -> "Choices":  # a function, so that settings do not show keys
        from remit.domain.llm.selection import Table, choose

        return choose(Table(*models[True]), Table(*models[False]), env)

    return Settings(root, values, tuple(unknown), choices)


def _apply_file(
    values: dict[str, Setting],
    found: Mapping[str, Any],
    path: Path,
    env: Mapping[str, str],
    *,
    of_workspace: bool,
) -> list[str]:
    """Set the values of a file; return why some of them have no effect."""
    complaints: list[str] = []
    for name, value in found.items():
        if complaint := _complaint(name, value, path, env, of_workspace=of_workspace):
            complaints.append(complaint)
            continue
        merged = _merge(values[name].value, _validate(name, value, str(path)))
        values[name] = Setting(merged, str(path))
    return complaints


def _apply_variable(values: dict[str, Setting], name: str, env: Mapping[str, str]) -> None:
    variable = variable_of(name)
    if env.get(variable):
        values[name] = Setting(_validate(name, env[variable], variable), variable)


def _apply_option(values: dict[str, Setting], name: str, options: Mapping[str, Any]) -> None:
    if options.get(name) is not None:
        option = f"--{name.replace('_', '-')}"
        values[name] = Setting(_validate(name, options[name], option), "option")


def _complaint(
    name: str, value: Any, path: Path, env: Mapping[str, str], *, of_workspace: bool
) -> str | None:
    """Return why a setting in a file has no effect; None if it has."""
    if name not in KNOWN:
        return f"{name} in {path}"
    if not of_workspace:
        return None
    if name in PERSONAL:
        return (
            f"{name} in {path}: expected in your own settings ({_own_file(env)}),"
            " not in those of a workspace"
        )
    if name == "allow_edits" and value is True and not _is_confirmed(path):
        return (
            f"allow_edits in {path}, which was not confirmed on this machine;"
            " confirm it with: `remit init --allow-edits`"
        )
    return None


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"REMIT_{name.upper().replace('.', '_')}"


def find_workspace(start: Path) -> Path | None:
    """Return the nearest folder with `.remit/`, from here upward."""
    folders = (start, *start.parents)
    return next((folder for folder in folders if (folder / FOLDER).is_dir()), None)


def make_workspace(root: Path) -> bool:
    """Create `.remit/` in a folder, for its owner only; return False if it exists."""
    folder = root / FOLDER
    made = not folder.is_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("agents", "guides", "templates"):
        (folder / name).mkdir(exist_ok=True)
    config = folder / "config.toml"
    if not config.exists():
        config.write_text(
            "# Settings of this workspace; `remit doctor` shows what is in force.\n# database_url ="
            ' "postgresql://user@host/name"\n'
        )
    keep_gitignore(folder)
    return made


EDITS = (
    "# Whether the agents build and general may change files and run sandboxed commands here. Set"
    " with: remit init --allow-edits or --no-allow-edits"
)


def set_edits(root: Path, *, allowed: bool) -> None:
    """Write to the workspace settings whether agents may edit, and record outside it that the
    operator decided so.
    """
    from remit.adapters import edit_permission

    path = root / FOLDER / "config.toml"
    before = path.read_text().splitlines()
    lines = [line for line in before if not _is_edit_setting(line)]
    # A key after a table would belong to that table, so it comes first.
    path.write_text("\n".join([EDITS, f"allow_edits = {str(allowed).lower()}", *lines]) + "\n")
    if allowed:
        edit_permission.allow_edits(root, _permission_settings(path))
    else:
        edit_permission.forbid_edits(root)


def _is_edit_setting(line: str) -> bool:
    """Return True for a line of the settings that `set_edits` writes."""
    return line == EDITS or line.partition("=")[0].strip() == "allow_edits"


def _is_confirmed(path: Path) -> bool:
    """Return True if the operator confirmed on this machine that agents may edit this workspace."""
    from remit.adapters import edit_permission

    return edit_permission.allows_edits(path.parent.parent, _permission_settings(path))


def _permission_settings(path: Path) -> dict[str, Any]:
    """Return the part of the workspace settings that grants permissions to agents."""
    return {name: value for name, value in _read(path).items() if name in ("allow_edits", "agents")}


def hide_workspace_from_git(settings: Settings) -> None:
    """Hide the database and the token of an opened workspace from git."""
    if settings.has_workspace:
        keep_gitignore(settings.folder)


def token(settings: Settings) -> str:
    """Return the operator's token: the setting, or the workspace's own, which is created on first
    use and readable only by its owner.
    """
    if settings.get("token"):
        return str(settings.get("token"))
    import secrets

    path = settings.folder / "token"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(handle, "w") as file:
        new = secrets.token_urlsafe(32)
        file.write(new + "\n")
    return new


def server_token(settings: Settings) -> str:
    """Return the token for the server that commands use: the setting, or the workspace's.

    None is created: only the server decides which token it accepts.
    """
    if settings.get("token"):
        return str(settings.get("token"))
    if settings.has_workspace:
        path = settings.folder / "token"
        if path.is_file():
            return path.read_text().strip()
    raise Unauthenticated(
        f"There is no token for the server at {settings.get('url')}.",
        hint="Set REMIT_TOKEN. On the server's machine, this prints it: `remit token show`",
    )


def _files(root: Path | None, env: Mapping[str, str]) -> list[Path]:
    """Return the settings files that exist: the workspace's, then the user's own."""
    files = [_own_file(env)]
    if root:
        files.insert(0, root / FOLDER / "config.toml")
    return list(filter(Path.is_file, files))


def _own_file(env: Mapping[str, str]) -> Path:
    """Return the path of the user's own settings file."""
    home = Path(env.get("XDG_CONFIG_HOME") or home_folder(env) / ".config")
    return home / "remit" / "config.toml"


def _read(path: Path) -> dict[str, Any]:
    """Read a settings file; the settings of its groups get dotted names."""
    try:
        found = _parse(path.read_text())
    except (ValueError, OSError) as error:
        raise invalid(str(path), f"cannot be read ({error})", "a TOML file") from error
    for table, expected in GROUPS.items():
        values = found.pop(table, {})
        if not isinstance(values, dict):
            raise invalid(
                f"{table} in {path}", "is not a table", f"a table [{table}] with {expected}"
            )
        for name, value in cast("dict[str, Any]", values).items():
            found[f"{table}.{name}"] = value
    return found


def _parse(text: str) -> dict[str, Any]:
    """Parse TOML. A new workspace has only comments, which do not need the parser."""
    if re.fullmatch(_COMMENTS, text):
        return {}
    import tomllib

    return tomllib.loads(text)


def _merge(old: Any, new: Any) -> Any:
    """Return a new value; of a table of tables, only the values that it has are new."""
    if not isinstance(new, dict):
        return new
    merged = dict(old)
    for name, table in cast("dict[str, Any]", new).items():
        merged[name] = {**merged.get(name, {}), **table}
    return merged


def _validate_table(name: str, value: Any, origin: str) -> Any:
    """Check the values of a table of tables; return it as it is."""
    for key, table in _items(value, f"{name} in {origin}"):
        for field, inner in _items(table, f"{name}.{key} in {origin}"):
            kind = TABLES[name].get(field)
            if kind is None or not _is_allowed(f"{name}.{field}", inner, kind):
                raise invalid(
                    f"{name}.{key}.{field} in {origin}",
                    "is not understood",
                    "tools (a list of names), model (text), effort"
                    f" ({', '.join(CHOICES['agents.effort'])}), disabled (true), concurrency (a"
                    " whole number, 0 for no limit)",
                )
            if kind is int:
                _number_in_range(f"{name}.{key}.{field}", inner, origin, f"{name}.{field}")
    return value


def _is_allowed(field: str, value: Any, kind: type) -> bool:
    """Return True for a value of the right type and, if there is a list of choices, one of them."""
    choices = CHOICES.get(field, (value,))
    return isinstance(value, kind) and _is_text_or_texts(value) and value in choices


def _is_text_or_texts(value: Any) -> bool:
    """Return False only for a list that contains something other than text."""
    if not isinstance(value, list | tuple):
        return True
    return all(isinstance(item, str) for item in cast("list[Any]", value))


def _items(value: Any, place: str) -> list[tuple[str, Any]]:
    """Return the items of a table; refuse anything else."""
    if not isinstance(value, dict):
        raise invalid(place, "is not a table", "a table such as [agents.general]")
    return list(cast("dict[str, Any]", value).items())


def _validate(name: str, value: Any, origin: str) -> Any:
    """Return a value of a setting in the right type; refuse a wrong one."""
    validator: Validator = _VALIDATORS.get(name, _text)
    return validator(name, value, origin)


def _text(name: str, value: Any, origin: str) -> str:
    if not isinstance(value, str):
        raise invalid(_place(name, origin), "is not text", "text")
    choices = CHOICES.get(name, (value,))
    if value not in choices:
        raise invalid(_place(name, origin), f"is {value!r}", f"one of {', '.join(choices)}")
    return value


def _switch(name: str, value: Any, origin: str) -> bool:
    if value in (True, "true", "1"):
        return True
    if value in (False, "false", "0"):
        return False
    raise invalid(_place(name, origin), f"is {value!r}", "true or false")


def _folders(name: str, value: Any, origin: str) -> tuple[str, ...]:
    """Parse paths: a list, or one text separated by colons."""
    items = value
    if isinstance(value, str):
        items = list(filter(None, value.split(":")))
    if not isinstance(items, list | tuple) or not _is_text_or_texts(items):
        raise invalid(f"{name} in {origin}", "is not a list of paths", 'such as ["~/.cache"]')
    return tuple(cast("list[str]", items))


def _number(name: str, value: Any, origin: str) -> float:
    """Parse the number of a setting within its range."""
    return _number_in_range(name, value, origin, name)


def _number_in_range(name: str, value: Any, origin: str, kind_of: str) -> float:
    """Parse a number within the range of a kind of numbers."""
    kind, low, high, expected = NUMBERS[kind_of]
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    is_cut = isinstance(value, float) and number != value
    if isinstance(value, bool) or is_cut or not low <= number <= high:
        raise invalid(_place(name, origin), f"is {value!r}", expected)
    return number


def _place(name: str, origin: str) -> str:
    """Return the place of a value: an option, or a setting and its origin."""
    if origin == name or origin.startswith("--"):
        return origin
    return f"{name} in {origin}"


Validator = Callable[[str, Any, str], Any]
_VALIDATORS: dict[str, Validator] = {
    **dict.fromkeys(TABLES, _validate_table),
    **dict.fromkeys(NUMBERS, _number),
    **dict.fromkeys(SWITCHES, _switch),
    "sandbox.read_only": _folders,
}
"""How the value of a setting is checked that is not text."""
