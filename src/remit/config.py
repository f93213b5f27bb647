"""Settings: where the workspace is, what is set, and where each value came from.

Later wins: the default, `.remit/config.toml`, the user's config, the environment (`REMIT_…`), an explicit option. Nothing is
imported here that would slow a command down.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from remit.adapters.gitignore import keep_gitignore
from remit.errors import NotFound, invalid
from remit.home import home_folder

if TYPE_CHECKING:  # few commands ask a model
    from remit.domain.choice import Choices

FOLDER = ".remit"
KNOWN: dict[str, tuple[Any, str]] = {
    "database_url": (None, "The store; without it, the workspace's own SQLite file."),
    "url": (None, "A server to go through instead of opening the store."),
    "token": (None, "The operator's token; without it, the one in the workspace, made when it is first needed."),
    "host": ("127.0.0.1", "The address that `remit serve` listens on."),
    "port": (8420, "The port that `remit serve` listens on; 0 takes a free one."),
    "hosts": (None, "Further names under which the server is reached, separated by commas, each with its port."),
    "mcp_tools": (
        "standard",
        "The tools that MCP clients are shown: `core`, `standard`, `all`, or names with commas.",
    ),
    "concurrency": (8, "How many runs a worker process has at once."),
    "heartbeat_seconds": (10.0, "How long a worker may be silent before others take over its runs."),
    "progress_seconds": (5.0, "How long a call that waits for a task may be silent before it repeats how the task stands."),
    "fleet_concurrency": (0, "How many runs all workers together have at once; 0 sets no limit."),
    "log_format": ("text", "How `remit worker` and `remit serve` log: `text`, or `json` for one object a line."),
    "scheduler.cron": ("0 6-21 * * *", "When tasks that wait for their turn get it."),
    "scheduler.timezone": (None, "The time zone of cron expressions, such as Europe/Berlin; without it, this machine's."),
    "tool_calls": (64, "How many tools a model may call in one answer."),
    "allow_unsandboxed": (
        False,
        "Let agents with Bash work, and run commands, where no bubblewrap contains them; without it they are refused there.",
    ),
    "sandbox.read_only": (
        (),
        "Further folders that commands of Bash may read, such as `~/.cache/pip`; in the environment, separated by colons.",
    ),
    "sandbox.network": (False, "Let commands of Bash use the network."),
    "allow_edits": (
        False,
        "Let `build` and `general` change files of the workspace and run sandboxed commands, without a grant in each call. "
        "In the file of a workspace it counts once `remit init --allow-edits` has confirmed it on this machine.",
    ),
    "runner": (None, "What carries out runs instead of remit's own agents, as module:name."),
    "agents": (
        {},
        "A table for each agent, such as `[agents.general]`: `tools` (a list), `model`, `effort`, `disabled` (true), `concurrency` (in the fleet).",
    ),
}
"""Every setting: its default, and what it is for."""
SECRET = ("token",)
TABLES = {"agents": {"tools": list, "model": str, "effort": str, "disabled": bool, "concurrency": int}}
"""Settings that are tables of tables: only files have them, and a later file changes single values. What each inner value is."""
PERSONAL = ("url", "token", "runner", "allow_unsandboxed", "sandbox.read_only", "sandbox.network")
"""What a workspace may not set: a folder that somebody else made could send the token elsewhere, or run code of its own."""
GROUPS = {"scheduler": "cron and timezone", "sandbox": "read_only and network"}
"""Tables of single settings, and what is in them."""
SWITCHES = ("allow_unsandboxed", "allow_edits", "sandbox.network")
"""Settings that are true or false."""
CHOICES = {"log_format": ("text", "json"), "agents.effort": ("none", "low", "medium", "high", "xhigh", "max")}
"""What a setting may be, where there are few possibilities."""
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
    """A value and where it came from."""

    value: Any
    origin: str


class Settings(NamedTuple):
    """What is in force."""

    workspace: Path | None
    values: dict[str, Setting]
    unknown: tuple[str, ...]
    choose: "Callable[[], Choices] | None" = None

    def get(self, name: str) -> Any:
        """The value of a setting."""
        return self.values[name].value

    @property
    def models(self) -> "Choices":
        """Which model each tier means."""
        from remit.domain.choice import Choices

        return self.choose() if self.choose else Choices({}, {})

    @property
    def folder(self) -> Path:
        """The workspace's own folder, which may not be there yet; an error if it could not be made."""
        if self.workspace is None:
            raise NotFound("There is no workspace here or in a folder above.", hint="Make one with: remit init")
        self.check_workspace()
        return self.workspace / FOLDER

    def check_workspace(self) -> None:
        """Refuse a workspace that was named and is not a folder; it may be mistyped."""
        if self.workspace is not None and not self.workspace.is_dir():
            hint = f"Check its name, or make it with: {self._init}"
            raise NotFound(f"There is no folder {self.workspace}.", hint=hint)

    @property
    def has_workspace(self) -> bool:
        """True if the workspace that was found or named is there."""
        return self.workspace is not None and (self.workspace / FOLDER).is_dir()

    @property
    def _init(self) -> str:
        from shlex import quote

        return f"remit init --workspace {quote(str(self.workspace))}"

    @property
    def database_url(self) -> str:
        """The store: what is set, or the file of the workspace, which must be there."""
        self.check_workspace()
        if url := self.get("database_url"):
            return str(url)
        folder = self.folder
        if not folder.is_dir():
            raise NotFound(f"There is no workspace in {self.workspace}.", hint=f"Make one with: {self._init}")
        return f"sqlite:///{folder / 'remit.db'}"


def load(workspace: Path | str | None = None, options: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """The settings in force for a folder, with explicit options above all."""
    env = os.environ if env is None else env
    named = workspace or env.get("REMIT_WORKSPACE") or None
    root = Path(named).absolute() if named else find_workspace(Path.cwd())
    values = {name: Setting(default, "default") for name, (default, _) in KNOWN.items()}
    unknown: list[str] = []
    tables: dict[bool, tuple[str, dict[str, Any]]] = {}
    for path in _files(root, env):
        theirs = root is not None and path.parent == root / FOLDER
        for name, value in _read(path).items():
            if name == "models" and isinstance(value, dict):
                tables[theirs] = str(path), cast("dict[str, Any]", value)
            elif name == "allow_edits" and theirs and value is True and not _is_confirmed(path):
                unknown.append(f"allow_edits in {path}, which was not confirmed on this machine (remit init --allow-edits)")
            elif name in KNOWN and not (name in PERSONAL and theirs):
                values[name] = Setting(_merged(values[name].value, _checked(name, value, str(path))), str(path))
            elif name in PERSONAL:
                told = f"expected in your own settings ({_own_file(env)}), not in those of a workspace"
                unknown.append(f"{name} in {path}: {told}")
            else:
                unknown.append(f"{name} in {path}")
    for name in KNOWN.keys() - TABLES.keys():
        variable = variable_of(name)
        if env.get(variable):
            values[name] = Setting(_checked(name, env[variable], variable), variable)
        if options and options.get(name) is not None:
            values[name] = Setting(_checked(name, options[name], f"--{name.replace('_', '-')}"), "option")

    def choices() -> "Choices":  # a function, so that no key is shown with the settings
        from remit.domain.choice import Table, choose

        files = [Table(*tables[theirs]) if theirs in tables else None for theirs in (True, False)]
        return choose(files[0], files[1], env)

    return Settings(root, values, tuple(unknown), choices)


def variable_of(name: str) -> str:
    """The environment variable that sets a setting."""
    return f"REMIT_{name.upper().replace('.', '_')}"


def find_workspace(start: Path) -> Path | None:
    """The nearest folder with `.remit/`, from here upward."""
    return next((folder for folder in (start, *start.parents) if (folder / FOLDER).is_dir()), None)


def make_workspace(root: Path) -> bool:
    """Make `.remit/` in a folder, for its owner alone; False if it was there."""
    folder = root / FOLDER
    made = not folder.is_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("agents", "guides", "templates"):
        (folder / name).mkdir(exist_ok=True)
    config = folder / "config.toml"
    if not config.exists():
        config.write_text('# Settings of this workspace; `remit doctor` shows what is in force.\n# database_url = "postgresql://user@host/name"\n')
    keep_gitignore(folder)
    return made


EDITS = "# Whether build and general change files here and run sandboxed commands: remit init --allow-edits, --no-allow-edits"


def set_edits(root: Path, *, allowed: bool) -> None:
    """Write into the settings of a workspace whether agents may change it, and record outside of it that the operator said so."""
    from remit.adapters import trust

    path = root / FOLDER / "config.toml"
    lines = [line for line in path.read_text().splitlines() if line.partition("=")[0].strip() != "allow_edits" and line != EDITS]
    # A key after a table would belong to that table, so it stands first.
    path.write_text("\n".join([EDITS, f"allow_edits = {str(allowed).lower()}", *lines]) + "\n")
    if allowed:
        trust.allow_edits(root, _granting(path))
    else:
        trust.forbid_edits(root)


def _is_confirmed(path: Path) -> bool:
    """True if the operator has confirmed on this machine that the agents of a workspace may change it."""
    from remit.adapters import trust

    return trust.allows_edits(path.parent.parent, _granting(path))


def _granting(path: Path) -> dict[str, Any]:
    """What the settings of a workspace say about the permissions of agents."""
    return {name: value for name, value in _read(path).items() if name in ("allow_edits", "agents")}


def keep_workspace(settings: Settings) -> None:
    """Keep git away from the database and the token of a workspace that is opened."""
    if settings.has_workspace:
        keep_gitignore(settings.folder)


def token(settings: Settings) -> str:
    """The operator's token: what is set, or the workspace's own, made when it is first wanted and readable by its owner alone."""
    if settings.get("token"):
        return str(settings.get("token"))
    import secrets

    path = settings.folder / "token"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(handle, "w") as file:
        made = secrets.token_urlsafe(32)
        file.write(made + "\n")
    return made


def _files(root: Path | None, env: Mapping[str, str]) -> list[Path]:
    candidates = [*([root / FOLDER / "config.toml"] if root else []), _own_file(env)]
    return [path for path in candidates if path.is_file()]


def _own_file(env: Mapping[str, str]) -> Path:
    """The file of the user's own settings."""
    home = Path(env.get("XDG_CONFIG_HOME") or home_folder(env) / ".config")
    return home / "remit" / "config.toml"


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        found = tomllib.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise invalid(str(path), f"cannot be read ({error})", "a TOML file") from error
    for table, expected in GROUPS.items():
        values = found.pop(table, {})
        if not isinstance(values, dict):
            raise invalid(f"{table} in {path}", "is not a table", f"a table [{table}] with {expected}")
        found |= {f"{table}.{name}": value for name, value in cast("dict[str, Any]", values).items()}
    return found


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(new, dict):
        return new
    return {**old, **{name: {**old.get(name, {}), **table} for name, table in cast("dict[str, Any]", new).items()}}


def _checked_table(name: str, value: Any, origin: str) -> Any:
    for key, table in _items(value, f"{name} in {origin}"):
        for field, inner in _items(table, f"{name}.{key} in {origin}"):
            kind = TABLES[name].get(field)
            allowed = CHOICES.get(f"{name}.{field}")
            if kind is None or not isinstance(inner, kind) or not _texts(inner) or (allowed and inner not in allowed):
                raise invalid(
                    f"{name}.{key}.{field} in {origin}",
                    "is not understood",
                    f"tools (a list of names), model (text), effort ({', '.join(CHOICES['agents.effort'])}), disabled (true),"
                    " concurrency (a whole number, 0 for no limit)",
                )
            if kind is int:
                _number(f"{name}.{key}.{field}", inner, origin, f"{name}.{field}")
    return value


def _texts(value: Any) -> bool:
    """True for what is no list, and for a list of texts."""
    return not isinstance(value, list | tuple) or all(isinstance(item, str) for item in cast("list[Any]", value))


def _items(value: Any, place: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise invalid(place, "is no table", "a table such as [agents.general]")
    return list(cast("dict[str, Any]", value).items())


def _checked(name: str, value: Any, origin: str) -> Any:
    if name in TABLES:
        return _checked_table(name, value, origin)
    if name in NUMBERS:
        return _number(name, value, origin)
    if name == "sandbox.read_only":
        return _folders(value, origin)
    if name in SWITCHES:
        if value not in (True, False, "true", "false", "1", "0"):
            raise invalid(f"{name} in {origin}", f"is {value!r}", "true or false")
        return value in (True, "true", "1")
    if not isinstance(value, str):
        raise invalid(f"{name} in {origin}", "is not text", "text")
    if name in CHOICES and value not in CHOICES[name]:
        raise invalid(f"{name} in {origin}", f"is {value!r}", f"one of {', '.join(CHOICES[name])}")
    return value


def _folders(value: Any, origin: str) -> tuple[str, ...]:
    """Paths: a list of them, or one text with colons between them."""
    items = [item for item in value.split(":") if item] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not _texts(items):
        raise invalid(f"sandbox.read_only in {origin}", "is not a list of paths", 'such as ["~/.cache"]')
    return tuple(cast("list[str]", items))


def _number(name: str, value: Any, origin: str, kind_of: str | None = None) -> float:
    """A number within its range, which for a value in a table is that of its field."""
    kind, low, high, expected = NUMBERS[kind_of or name]
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if isinstance(value, bool) or (isinstance(value, float) and number != value) or not low <= number <= high:
        raise invalid(f"{name} in {origin}" if origin != name else name, f"is {value!r}", expected)
    return number
