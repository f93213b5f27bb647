"""SQL files with named statements.

`-- name: X` begins a statement, and `-- fragment: X` a part that statements of the same file
include as `<X>`. Other comments are for people and are left out. Commands that only read split a
file at their start, so this is done without regular expressions.
"""

from pathlib import Path

_NAME, _FRAGMENT = "-- name: ", "-- fragment: "


class SqlFile(dict[str, str]):
    """The statements of a file by name; the file is read when the first one is asked for.

    Each statement is put together once, when it is first asked for.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._names: dict[str, list[str]] = {}
        self._fragments: dict[str, list[str]] = {}

    @property
    def names(self) -> dict[str, list[str]]:
        """The lines of every statement of the file, by name."""
        if not self._names:
            self._read()
        return self._names

    def _read(self) -> None:
        lines: list[str] = []
        for line in self.path.read_text().splitlines():
            if line.startswith(_NAME):
                lines = self._names[line.removeprefix(_NAME)] = []
            elif line.startswith(_FRAGMENT):
                lines = self._fragments[line.removeprefix(_FRAGMENT)] = []
            elif line and not line.startswith("--"):
                lines.append(line)

    def __missing__(self, name: str) -> str:
        statement = "\n".join(self.names[name])
        for fragment, lines in self._fragments.items():
            statement = statement.replace(f"<{fragment}>", "\n".join(lines))
        self[name] = statement = statement.rstrip(";")
        return statement


def beside(module: str, *names: str) -> tuple[SqlFile, ...]:
    """Return the SQL files with these names in the folder of a module."""
    folder = Path(module).parent
    return tuple(SqlFile(folder / f"{name}.sql") for name in names)
