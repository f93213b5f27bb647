"""The user's programs that sandboxed commands can use: read-only, without secrets."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from remit.adapters.tools.shell.sandbox import ENVIRONMENT, SYSTEM, Shown
from remit.errors import invalid
from remit.home import home_folder, in_home

ROOTS: Mapping[str, str] = {
    ".asdf": "ASDF_DIR",
    ".bun": "BUN_INSTALL",
    ".cargo": "",
    ".deno": "DENO_INSTALL",
    ".dotnet": "DOTNET_ROOT",
    ".ghcup": "",
    ".goenv": "GOENV_ROOT",
    ".jenv": "JENV_ROOT",
    ".juliaup": "",
    ".local/share/fnm": "FNM_DIR",
    ".local/share/mise": "MISE_DATA_DIR",
    ".local/share/pnpm": "PNPM_HOME",
    ".local/share/uv": "",
    ".nodenv": "NODENV_ROOT",
    ".nvm": "NVM_DIR",
    ".opam": "OPAMROOT",
    ".pyenv": "PYENV_ROOT",
    ".rbenv": "RBENV_ROOT",
    ".rustup": "RUSTUP_HOME",
    ".sdkman": "SDKMAN_DIR",
    ".volta": "VOLTA_HOME",
    "anaconda3": "",
    "go": "",
    "miniconda3": "",
    "miniforge3": "",
}
"""Folders in the home folder where programs are installed, and the variable that names each, also
elsewhere.
"""

PREFIXED = ("bin", "sbin", "shims")
"""Names of folders whose programs need other folders beside them."""

COMPANIONS = {".cargo": (".rustup",)}
"""Other folders that the programs of a folder need."""

SECRETS = (
    *(".ssh", ".aws", ".azure", ".config", ".docker", ".gnupg", ".kube", ".password-store"),
    *(".git-credentials", ".netrc", ".npmrc", ".pypirc", ".bash_history", ".zsh_history"),
    *(".local/share/keyrings", ".local/state", ".mozilla", ".thunderbird"),
)
"""Paths in the home folder that commands never see, whatever the settings say."""

MASKED = (
    *("credentials", "credentials.toml", ".env", ".git-credentials", ".netrc", ".npmrc"),
    *(".pypirc", ".remit"),
)
"""Names that are hidden at the top of each readable folder, and everywhere in a folder of the
settings.
"""
_PRIVATE = frozenset(SECRETS).difference(MASKED)
"""The secrets that make a whole folder unreadable: they are not hidden inside it."""
MAX_MASKED = 1_000
"""How many paths of the settings' folders a sandbox can hide."""

TOKENS = (
    *(".cache/huggingface/token", ".cache/huggingface/stored_tokens"),
    *(".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json"),
    *(".gradle/gradle.properties", ".m2/settings.xml", ".m2/settings-security.xml"),
    *(".terraform.d/credentials.tfrc.json", ".bundle/config", ".condarc"),
)
"""Files in the home folder that are hidden even inside a readable folder."""


class Toolchains(NamedTuple):
    """The paths that commands can use besides the system and the workspace."""

    folders: tuple[str, ...] = ()
    """Readable folders and files."""
    path: tuple[str, ...] = ()
    """Folders to search for programs before those of the system."""
    late_path: tuple[str, ...] = ()
    """Folders to search after those of the system, because what their programs need is hidden."""
    links: tuple[tuple[str, str], ...] = ()
    """Configured folders of the home folder, and where commands find them below their own home."""
    variables: Mapping[str, str] = {}
    network: bool = False
    tokens: tuple[str, ...] = ()
    """Hidden files inside the readable folders."""
    named: tuple[str, ...] = ()
    """The folders of the settings, without those that are inside another one."""

    def environment(self) -> dict[str, str]:
        """Return the environment of a command."""
        search = ":".join([*self.path, ENVIRONMENT["PATH"], *self.late_path])
        return {**ENVIRONMENT, **self.variables, "PATH": search}

    def shown(self) -> Shown:
        """Return what a sandbox shows of these paths."""
        return Shown(self.folders, self.masked(), self.links)

    def masked(self) -> tuple[str, ...]:
        """Return the paths to hide inside the readable folders."""
        paths = [Path(folder) / name for folder in self.folders for name in MASKED]
        paths += map(Path, self.tokens)
        paths += self._find_masked()
        # A mount over a link would cover its target, or need it.
        existing = (path.resolve() for path in paths if path.exists())
        seen = tuple(map(Path, self.folders))
        return tuple(dict.fromkeys(str(path) for path in existing if _is_within_any(path, seen)))

    def _find_masked(self) -> list[Path]:
        """Return the paths to hide at any depth in the folders of the settings."""
        found: list[Path] = []
        for folder in self.named:
            for place, folders, files in os.walk(folder):
                there = {*folders, *files}
                found += [Path(place) / name for name in MASKED if name in there]
                folders[:] = [name for name in folders if name not in MASKED]
            if len(found) > MAX_MASKED:
                problem = f"{folder} contains more than {MAX_MASKED:,} files with credentials"
                raise invalid("sandbox.read_only", problem, "folders that contain only programs")
        return found


NONE = Toolchains()


def find_toolchains(
    workspace: Path,
    env: Mapping[str, str],
    read_only: Sequence[str] = (),
    *,
    network: bool = False,
) -> Toolchains:
    """Find the programs on the user's PATH, the active virtual environment, and the folders that
    the settings name.
    """
    home = home_folder(env).resolve()
    finder = _Finder(workspace.resolve(), home, _find_named_roots(env, home))
    named = list(map(finder.resolve_setting, read_only))
    programs = finder.find_programs(env.get("PATH", ""))
    venv = finder.find_virtual_environment(env.get("VIRTUAL_ENV", ""))
    folders = finder.select_allowed([*named, *venv, *finder.find_roots(programs)])
    variables = finder.name_roots(folders)
    if venv:
        variables["VIRTUAL_ENV"] = str(venv[0])
    outermost = _drop_inner(folders)
    visible = finder.select_visible(programs, folders)
    complete = finder.select_complete(visible, folders)
    return Toolchains(
        folders=tuple(map(str, outermost)),
        path=tuple(map(str, complete)),
        late_path=tuple(str(folder) for folder in visible if folder not in complete),
        links=tuple(finder.find_links(read_only, folders)),
        variables=variables,
        network=network,
        tokens=tuple(map(str, _find_tokens(home, outermost))),
        named=tuple(map(str, _drop_inner([path for path in named if path in folders]))),
    )


def _find_named_roots(env: Mapping[str, str], home: Path) -> dict[str, Path]:
    """Return the folders of version managers that the environment names, by their variables."""
    roots: dict[str, Path] = {}
    for variable in filter(None, ROOTS.values()):
        named = env.get(variable, "")
        if named.startswith("/") and _is_installation(root := Path(named).resolve(), home):
            roots[variable] = root
    return roots


def _is_installation(root: Path, home: Path) -> bool:
    """Return False for a whole top-level folder and for the home folder of another user."""
    if root.is_relative_to(home):
        return True
    return len(root.parts) > 2 and not any(map(_is_home, (root, *root.parents)))


def _find_tokens(home: Path, folders: Sequence[Path]) -> list[Path]:
    """Return the token files that are inside readable folders."""
    tokens = map(home.joinpath, TOKENS)
    return [token for token in tokens if _is_within_any(token, folders)]


class _Finder:
    """Decides which of the user's folders commands may read."""

    def __init__(self, workspace: Path, home: Path, named: Mapping[str, Path]) -> None:
        self._workspace, self._home, self._named = workspace, home, named
        self._secrets = list(map(home.joinpath, SECRETS))

    def resolve_setting(self, item: str) -> Path:
        """Resolve a folder from the settings; `InvalidParam` if it must stay hidden."""
        written = in_home(item, {"HOME": str(self._home)})
        if not written.is_absolute():
            raise invalid("sandbox.read_only", f"{item!r} is relative", "absolute paths, or ~/…")
        path = written.resolve()
        if not self._is_harmless(path):
            problem = f"{item!r} is or contains secrets, your home folder or .remit"
            raise invalid("sandbox.read_only", problem, "folders that contain only programs")
        return path

    def find_programs(self, search: str) -> list[Path]:
        """Return the folders of a PATH that exist and are not system folders."""
        folders = dict.fromkeys(
            Path(item).resolve() for item in search.split(":") if item.startswith("/")
        )
        return list(filter(_has_programs, folders))

    def find_roots(self, folders: Iterable[Path]) -> Iterator[Path]:
        """Yield the folders that programs in these folders need to run."""
        for folder in folders:
            root = self._find_known_root(folder)
            named = list(filter(folder.is_relative_to, self._named.values()))
            if named:
                yield from named
            elif root is None:
                yield self._find_prefix(folder)
            else:
                yield self._home / root
                yield from map(self._home.joinpath, COMPANIONS.get(root, ()))

    def _find_known_root(self, folder: Path) -> str | None:
        """Return the version manager in the home folder that a folder belongs to."""
        roots = (root for root in ROOTS if folder.is_relative_to(self._home / root))
        return next(roots, None)

    def _find_prefix(self, folder: Path) -> Path:
        """Return the folder that holds bin, lib and share; a personal one is not opened."""
        parent = folder.parent
        if folder.name not in PREFIXED or len(parent.parts) <= 2:
            return folder
        if folder.is_relative_to(self._home) or _is_personal(parent):
            return folder
        return parent

    def find_virtual_environment(self, named: str) -> list[Path]:
        """Return the active virtual environment and the folders of its interpreter."""
        if not named.startswith("/") or not (Path(named) / "pyvenv.cfg").is_file():
            return []
        folder = Path(named).resolve()
        homes = _read_homes(folder / "pyvenv.cfg")
        interpreters = filter(_has_programs, homes)
        return [folder, *self.find_roots(interpreters)]

    def select_allowed(self, folders: Iterable[Path]) -> list[Path]:
        """Keep folders that exist, are outside the workspace and hold no secrets, each once."""
        return list(filter(self._is_allowed, dict.fromkeys(folders)))

    def _is_allowed(self, folder: Path) -> bool:
        is_outside = not folder.is_relative_to(self._workspace)
        return is_outside and folder.exists() and self._is_harmless(folder)

    def select_visible(self, folders: Iterable[Path], readable: Sequence[Path]) -> list[Path]:
        """Keep folders that are in the workspace or in a readable folder."""
        seen = [self._workspace, *readable]
        return [folder for folder in folders if _is_within_any(folder, seen)]

    def select_complete(self, folders: Iterable[Path], readable: Sequence[Path]) -> list[Path]:
        """Keep folders whose programs find what they need beside them."""
        seen = [self._workspace, *readable]
        return [
            folder
            for folder in folders
            if folder.name not in PREFIXED or _is_within_any(folder.parent, seen)
        ]

    def name_roots(self, folders: Sequence[Path]) -> dict[str, str]:
        """Return the variables that name the readable folders of version managers."""
        variables: dict[str, str] = {}
        for root, variable in ROOTS.items():
            place = self._named.get(variable, self._home / root)
            if variable and place in folders:
                variables[variable] = str(place)
        return variables

    def find_links(
        self, read_only: Sequence[str], readable: Sequence[Path]
    ) -> Iterator[tuple[str, str]]:
        """Yield the readable folders of the settings that are in the home folder, each with its
        place below the home of commands.
        """
        written: dict[Path, Path] = {}
        for item in read_only:
            path = Path(os.path.normpath(in_home(item, {"HOME": str(self._home)})))
            if path.is_relative_to(self._home) and path.resolve() in readable:
                written[path] = Path(ENVIRONMENT["HOME"]) / path.relative_to(self._home)
        taken = [self._workspace, *readable]
        for path in _drop_inner(list(written)):
            place = written[path]
            is_free = not any(
                other.is_relative_to(place) or place.is_relative_to(other) for other in taken
            )
            if is_free:
                yield str(path.resolve()), str(place)

    def _is_harmless(self, path: Path) -> bool:
        """Return False for a folder that is, contains or is inside something to hide."""
        hidden = (self._home, self._workspace, *self._secrets)
        contains_hidden = any(inner.is_relative_to(path) for inner in hidden)
        return not (
            contains_hidden
            or _has_any(path, _PRIVATE)
            or ".remit" in path.parts
            or _is_within_any(path, self._secrets)
        )


def _read_homes(config: Path) -> list[Path]:
    """Return the folder of the interpreter that the file of a virtual environment names."""
    homes: list[Path] = []
    for line in config.read_text(errors="replace").split("\n"):
        name, _, value = line.partition("=")
        home = value.strip()
        if name.strip() == "home" and home.startswith("/"):
            homes.append(Path(home).resolve())
    return homes


def _has_programs(folder: Path) -> bool:
    """Return whether a folder exists and is not a system folder."""
    return folder.is_dir() and not _is_within_any(folder, map(Path, SYSTEM))


def _has_secrets(folder: Path) -> bool:
    """Return whether a folder has what only the home folder of a user has."""
    return _has_any(folder, SECRETS)


def _has_any(folder: Path, names: Iterable[str]) -> bool:
    """Return whether a folder has a file or folder with one of these names."""
    return any((folder / name).exists() for name in names)


def _is_personal(folder: Path) -> bool:
    """Return True for any user's home folder and for a hidden folder such as ~/.local."""
    is_hidden = any(part.startswith(".") for part in folder.parts)
    return is_hidden or _is_home(folder)


def _is_home(folder: Path) -> bool:
    """Return whether a folder is the home folder of a user."""
    return folder.parent == Path("/home") or _has_secrets(folder)


def _drop_inner(folders: Sequence[Path]) -> list[Path]:
    """Drop the folders that are inside another folder."""
    return [folder for folder in folders if not _is_within_any(folder.parent, folders)]


def _is_within_any(path: Path, folders: Iterable[Path]) -> bool:
    return any(map(path.is_relative_to, folders))
