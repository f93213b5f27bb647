"""The user's programs as commands in the sandbox see them: read-only, without secrets."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from remit.adapters.tools.sandbox import ENVIRONMENT, SYSTEM
from remit.errors import invalid

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
"""Where programs are installed in a home folder, and the variable that says so."""

COMPANIONS = {".cargo": (".rustup",)}
"""What the programs of one folder need from another."""

SECRETS = (
    *(".ssh", ".aws", ".azure", ".config", ".docker", ".gnupg", ".kube", ".password-store"),
    *(".git-credentials", ".netrc", ".npmrc", ".pypirc", ".bash_history", ".zsh_history"),
    *(".local/share/keyrings", ".local/state", ".mozilla", ".thunderbird"),
)
"""What no command sees of a home folder, whatever the settings say."""

MASKED = ("credentials", "credentials.toml", ".env", ".netrc", ".npmrc", ".pypirc", ".remit")
"""What is hidden at the top of a folder that commands see."""


TOKENS = (
    *(".cache/huggingface/token", ".cache/huggingface/stored_tokens"),
    *(".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json"),
    *(".gradle/gradle.properties", ".m2/settings.xml", ".m2/settings-security.xml"),
    *(".terraform.d/credentials.tfrc.json", ".bundle/config", ".condarc"),
)
"""Files of a home folder that are hidden wherever a folder with them is shown."""


class Toolchains(NamedTuple):
    """What commands see beside the system and the workspace."""

    folders: tuple[str, ...] = ()
    """Folders and files that can be read."""
    path: tuple[str, ...] = ()
    """Where programs are looked for before the system's own."""
    variables: Mapping[str, str] = {}
    network: bool = False
    tokens: tuple[str, ...] = ()
    """Files in the folders that are hidden all the same."""

    def environment(self) -> dict[str, str]:
        """The environment of a command."""
        search = ":".join([*self.path, ENVIRONMENT["PATH"]])
        return {**ENVIRONMENT, **self.variables, "PATH": search}

    def masked(self) -> tuple[str, ...]:
        """What is hidden again in the folders that can be read."""
        paths = [Path(folder) / name for folder in self.folders for name in MASKED]
        paths += [Path(token) for token in self.tokens]
        return tuple(dict.fromkeys(str(path) for path in paths if path.exists()))


NONE = Toolchains()


def toolchains_of(
    workspace: Path,
    env: Mapping[str, str],
    read_only: Sequence[str] = (),
    *,
    network: bool = False,
) -> Toolchains:
    """What is on the user's PATH, the active virtual environment, and what the settings name."""
    home = Path(env.get("HOME") or "~").expanduser().resolve()
    finder = _Finder(workspace.resolve(), home)
    named = [finder.named(item) for item in read_only]
    written = env.get("PATH", "").split(":")
    search = [Path(item).resolve() for item in written if item.startswith("/")]
    programs = [folder for folder in dict.fromkeys(search) if finder.has_programs(folder)]
    venv = finder.virtual_environment(env.get("VIRTUAL_ENV", ""))
    wanted = [*named, *venv, *(root for folder in programs for root in finder.roots(folder))]
    folders = [str(folder) for folder in dict.fromkeys(wanted) if finder.is_allowed(folder)]
    visible = [str(folder) for folder in programs if finder.is_visible(folder, folders)]
    roots = {name: str(home / root) for root, name in ROOTS.items() if name}
    variables = {name: root for name, root in roots.items() if root in folders}
    if venv:
        variables["VIRTUAL_ENV"] = str(venv[0])
    shown = _outermost(folders)
    tokens = [home / name for name in TOKENS]
    inside = [str(token) for token in tokens if any(_is_within(token, Path(item)) for item in shown)]
    return Toolchains(shown, tuple(visible), variables, network, tuple(inside))


class _Finder:
    """Decides which folders of a user commands may read."""

    def __init__(self, workspace: Path, home: Path) -> None:
        self._workspace, self._home = workspace, home
        self._secrets = [home / name for name in SECRETS]

    def named(self, item: str) -> Path:
        """A folder that the settings name; InvalidParam if it must stay hidden."""
        written = Path(item.replace("~", str(self._home), 1) if item.startswith("~") else item)
        if not written.is_absolute():
            raise invalid("sandbox.read_only", f"{item!r} is relative", "absolute paths, or ~/…")
        path = written.resolve()
        if not self._is_harmless(path):
            problem = f"{item!r} is or holds secrets, your home folder or .remit"
            raise invalid("sandbox.read_only", problem, "the folders of programs alone")
        return path

    def has_programs(self, folder: Path) -> bool:
        """Whether a folder of the PATH is there, and is not one of the system's own."""
        is_system = any(_is_within(folder, Path(system)) for system in SYSTEM)
        return folder.is_dir() and not is_system

    def roots(self, folder: Path) -> Iterator[Path]:
        """What must be read so that the programs in a folder can run."""
        for name in ROOTS:
            if _is_within(folder, self._home / name):
                yield self._home / name
                yield from (self._home / other for other in COMPANIONS.get(name, ()))
                return
        parent = folder.parent
        is_prefix = folder.name in ("bin", "sbin") and len(parent.parts) > 2
        if is_prefix and not _is_within(folder, self._home) and not _is_personal(parent):
            yield parent
        else:
            yield folder

    def virtual_environment(self, named: str) -> list[Path]:
        """The active virtual environment, and where its interpreter is installed."""
        if not named.startswith("/") or not (Path(named) / "pyvenv.cfg").is_file():
            return []
        folder = Path(named).resolve()
        lines = (folder / "pyvenv.cfg").read_text(errors="replace").split("\n")
        pairs = [line.partition("=") for line in lines]
        homes = [value.strip() for name, _, value in pairs if name.strip() == "home"]
        installed = [Path(home).resolve() for home in homes if home.startswith("/")]
        places = [place for place in installed if self.has_programs(place)]
        return [folder, *(root for place in places for root in self.roots(place))]

    def is_allowed(self, folder: Path) -> bool:
        """Whether a folder is there, is not seen anyway, and holds no secrets."""
        is_inside = _is_within(folder, self._workspace)
        return folder.exists() and not is_inside and self._is_harmless(folder)

    def is_visible(self, folder: Path, folders: Sequence[str]) -> bool:
        """Whether commands see a folder: in the workspace, or in one of the others."""
        seen = [self._workspace, *map(Path, folders)]
        return any(_is_within(folder, root) for root in seen)

    def _is_harmless(self, path: Path) -> bool:
        if ".remit" in path.parts:
            return False
        if any(_is_within(inner, path) for inner in (self._home, self._workspace, *self._secrets)):
            return False
        if any((path / name).exists() for name in SECRETS):  # the home folder of another user
            return False
        return not any(_is_within(path, secret) for secret in self._secrets)


def _is_personal(folder: Path) -> bool:
    """True for a home folder, also of another user, and for a hidden folder such as ~/.local."""
    is_hidden = any(part.startswith(".") for part in folder.parts)
    return is_hidden or folder.parent == Path("/home") or any((folder / name).exists() for name in SECRETS)


def _outermost(folders: Sequence[str]) -> tuple[str, ...]:
    """Folders without those that are in another of them."""
    paths = [Path(folder) for folder in folders]
    inner = {path for path in paths for other in paths if other in path.parents}
    return tuple(str(path) for path in paths if path not in inner)


def _is_within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents
