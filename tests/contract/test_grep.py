"""Grep finds the same with and without ripgrep: what Python's own engine finds, line by line."""

import os
import re
from collections.abc import AsyncIterator
from itertools import chain, cycle, product
from pathlib import Path
from typing import Any

import pytest

from remit.adapters.tools.search.grep import ripgrep_arguments
from remit.adapters.tools.search.regex import Expression
from tests.toolbox import BOXES, RG, Toolbox

FILES = {
    "a/main.py": b"import os\n\n\ndef main() -> None:\n    print('hello')\n\nmain()  # x1\n",
    "a/types.pyi": b"def main() -> None: ...\n",
    "a/app.ts": b"interface Foo {\n  a: number;\n}\nfunction bar() {}\n",
    "a/view.vue": b"<template>hello</template>\n",
    "b/lib.rs": b'fn main() {\n    let x = vec![1, 2];\n    println!("{}", x[0]);\n}\n',
    "b/windows.txt": b"one;\r\ntwo\r\n\r\nthree;\r\n",
    "b/mark.txt": b"\xef\xbb\xbfimport first\nsecond\n",
    "b/latin.txt": b"caf\xe9 cr\xe8me\nna\xefve\n",
    "b/utf8.txt": "café crème\nnaïve ΣΑΣ σας\n日本語 text\n".encode(),
    "c/empty.txt": b"",
    "c/no_end.txt": b"last line",
    "c/blank.txt": b"\n\n\n",
    "c/tail.txt": b"a\nb\nc\n\n",
    "c/deep/er/Makefile": b"all:\n\techo a-b [x] {y} $z ^w\n",
    "c/json.json": b'{"a": [1, 2], "b": {"c": "d\\\\e"}}\n',
    "c/long.txt": b"x" * 700 + b"needle\n",
    "data.bin": b"\0\0hello main\n",
    "late.bin": b"y" * 10_000 + b"\nmain hello\n",
}

BINARY = "data.bin"
HOW = "If you have Bash, search one with: grep -aE -e PATTERN FILE]"
SKIPPED = f"\n[Not searched: 1 binary file with a match ({BINARY}). {HOW}"

PATTERNS = [
    "main",
    "Main",
    "hel+o",
    r"\bmain\b",
    r"\Bain",
    r"^def \w+\(",
    r"^import",
    r"^$",
    r"^",
    r"$",
    r";$",
    r"\s+$",
    r"x*",
    r"\d+",
    r"\D\d\D",
    r"[^a-z\s]{3}",
    r"[\w.]+@|\(\)",
    r"[\W_]x",
    r"[]x]",
    r"[^]x]\]",
    r"[[:upper:]]",
    r"[a[]",
    r"\[x\] \{y\} \$z \^w",
    r"a\-b",
    r"\{\}",
    r"interface Foo {",
    r"function bar\(\) {}",
    r"println!\(\"\{\}\"",
    r"a\/b|one",
    r"(?i)HELLO",
    r"(?:hello|second)",
    r"(?P<name>t)wo",
    r"(one|two|three);?$",
    r"caf.",
    r"caf. cr",
    r"café",
    r"cr[èe]me",
    r"n.+ve",
    r"日.語",
    r"\x41",
    r"\x{e9}",
    r"\techo",
    r"d\\\\e",
    r"x{3,5}needle",
    r"x{2}",
    r".{6}$",
    r"e\b",
    r"\.\.\.",
    r"'hello'\)",
    r"nothing at all",
    r"a&&b|~~",
    r"-> None",
    r"--",
    r"-e",
    r"#",
    r"[#-]",
    r"(|main)",
]

SPANNING = [
    r"interface Foo \{.*?\}",
    r"import os.*def main",
    r"os\n\n\ndef",
    r"main\(\)[^:]*:\n",
    r"^def main.*^main",
    r"\{\n  a: number;\n\}",
    r"b\nc$",
    r"^$",
    r"main",
    r"two\r\n\r\nthree",
    r"nothing\nat all",
]

OPTIONS: list[dict[str, Any]] = [
    {},
    {"-i": True},
    {"path": "b"},
    {"path": "c/deep"},
    {"glob": "*.py"},
    {"glob": "!*.txt"},
    {"glob": "a/*.{ts,py}"},
    {"type": "py"},
    {"type": "rust"},
    {"type": "make"},
    {"type": "js", "glob": "a/*"},
]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    for name, data in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


@pytest.fixture(params=["without", *(["with"] if RG else [])])
async def grep(request: pytest.FixtureRequest, workspace: Path) -> AsyncIterator[Toolbox]:
    """Tools with and without ripgrep."""
    rg = RG if request.param == "with" else None
    toolbox = Toolbox(workspace, box=BOXES[-1], rg=rg)
    yield toolbox
    await toolbox.host.close()


def names_of(options: dict[str, Any]) -> list[str]:
    """The files that a call is about, in the order of the answer."""
    below = f"{options['path']}/" if "path" in options else ""
    suffixes = {
        "*.py": (".py",),
        "a/*.{ts,py}": (".ts", ".py"),
        "py": (".py", ".pyi"),
        "rust": (".rs",),
        "make": ("Makefile",),
        "js": (".vue",),
    }
    ending = suffixes.get(options.get("type") or options.get("glob", ""), ("",))
    unwanted = ".txt" if options.get("glob") == "!*.txt" else "\0"
    found = [name for name in FILES if name.startswith(below) and name.endswith(ending)]
    in_order = sorted(found, key=lambda name: name.split("/"))
    return [name for name in in_order if name != "data.bin" and not name.endswith(unwanted)]


def text_of(name: str) -> str:
    """A file as Python sees it: bytes that are not UTF-8 are characters that nothing matches."""
    return FILES[name].removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def compiled(pattern: str, flags: int) -> re.Pattern[str]:
    """The same expression for Python, where a byte that is not UTF-8 is not a character."""
    for ours, theirs in (
        ("[[:upper:]]", "[A-Z]"),
        ("[a[]", r"[a\[]"),
        (r"\x{e9}", "\xe9"),
        ("caf.", "caf[^\udc80-\udcff]"),
        ("n.+ve", "n[^\udc80-\udcff]+ve"),
        (r"[^a-z\s]", "[^a-z\\s\udc80-\udcff]"),
        (r".{6}$", "[^\udc80-\udcff]{6}$"),
        (r"[\W_]x", "[^a-zA-Z0-9\udc80-\udcff]x"),
    ):
        pattern = pattern.replace(ours, theirs)
    # ASCII alone for \w, \d, \s and \b, and Unicode for upper and lower case.
    for name, members in (("w", "a-zA-Z0-9_"), ("d", "0-9")):
        pattern = pattern.replace(f"[\\{name}", f"[{members}").replace(f"\\{name}", f"[{members}]")
    if r"\b" in pattern or r"\B" in pattern or r"\D" in pattern:
        flags |= re.ASCII
    return re.compile(pattern, flags)


def lines_of(name: str, *, keep_returns: bool) -> list[str]:
    text = text_of(name)
    lines = text.removesuffix("\n").split("\n") if text else []
    return lines if keep_returns else [line.removesuffix("\r") for line in lines]


def numbered(name: str, lines: list[str], hits: set[int], around: int) -> list[str]:
    near = [i for i in range(len(lines)) if any(abs(i - hit) <= around for hit in hits)]
    found: list[str] = []
    for place, index in enumerate(near):
        if around and place and near[place - 1] != index - 1:
            found.append("--")
        line = lines[index].removesuffix("\r").encode("utf-8", "surrogateescape")
        shown = line.decode("utf-8", "replace")
        cut = shown if len(shown) <= 500 else f"{shown[:500]} [line truncated]"
        found.append(f"{name}:{index + 1}{':' if index in hits else '-'}{cut}")
    return found


def expected(pattern: str, options: dict[str, Any], mode: str, around: int) -> str:
    test = compiled(pattern, re.IGNORECASE if options.get("-i") else 0)
    found: list[str] = []
    for name in names_of(options):
        lines = lines_of(name, keep_returns=r"\r" in pattern)
        hits = {index for index, line in enumerate(lines) if test.search(line)}
        found += answer_of(name, lines, hits, len(hits), mode, around)
    answer = "\n".join(found) or f"Nothing matches {pattern!r}."
    binary = lines_of(BINARY, keep_returns=r"\r" in pattern) if is_about_binary(options) else []
    return answer + (SKIPPED if any(test.search(line) for line in binary) else "")


def is_about_binary(options: dict[str, Any]) -> bool:
    """Whether a search would look into the one binary file."""
    return not options.keys() - {"-i"} or options == {"glob": "!*.txt"}


def spanning(pattern: str, mode: str, around: int) -> str:
    test = compiled(pattern, re.MULTILINE | re.DOTALL)
    found: list[str] = []
    for name in names_of({}):
        text = text_of(name)
        spans = [match.span() for match in test.finditer(text) if match.start() < len(text)]
        hits: set[int] = set()
        for start, end in spans:
            first, last = (text.count("\n", 0, place) for place in (start, max(start, end - 1)))
            hits.update(range(first, last + 1))
        lines = lines_of(name, keep_returns=True)
        found += answer_of(name, lines, hits, len(spans), mode, around)
    answer = "\n".join(found) or f"Nothing matches {pattern!r}."
    text = text_of(BINARY)
    is_skipped = any(match.start() < len(text) for match in test.finditer(text))
    return answer + (SKIPPED if is_skipped else "")


def answer_of(
    name: str,
    lines: list[str],
    hits: set[int],
    count: int,
    mode: str,
    around: int,
) -> list[str]:
    if not hits:
        return []
    if mode == "content":
        return numbered(name, lines, hits, around)
    return [name if mode == "files_with_matches" else f"{name}:{count}"]


@pytest.mark.parametrize("mode", ["files_with_matches", "content", "count"])
async def test_every_pattern_finds_what_pythons_engine_finds(grep: Toolbox, mode: str) -> None:
    everywhere = [(pattern, OPTIONS[0]) for pattern in PATTERNS]
    somewhere = zip(PATTERNS, cycle(OPTIONS), strict=False)
    in_each = product((r"\bmain\b", "[[:upper:]]"), OPTIONS)
    for pattern, options in chain(everywhere, somewhere, in_each):
        found = await grep.said("Grep", pattern=pattern, output_mode=mode, **options)
        assert found == expected(pattern, options, mode, 0), (pattern, options)


@pytest.mark.parametrize("around", [0, 1, 3])
async def test_context_is_the_same_around_every_match(grep: Toolbox, around: int) -> None:
    context = {"-C": around} if around else {}
    for pattern in PATTERNS:
        found = await grep.said("Grep", pattern=pattern, output_mode="content", **context)
        assert found == expected(pattern, {}, "content", around), pattern


@pytest.mark.parametrize("mode", ["files_with_matches", "content", "count"])
async def test_a_multiline_match_spans_lines(grep: Toolbox, mode: str) -> None:
    for pattern, around in product(SPANNING, (0, 1)):
        context = {"-C": around} if around and mode == "content" else {}
        arguments = {"pattern": pattern, "output_mode": mode, "multiline": True, **context}
        found = await grep.said("Grep", **arguments)
        assert found == spanning(pattern, mode, around), (pattern, around)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"foo(?=bar)", "look-around is not supported"),
        (r"(?<!a)b", "look-around is not supported"),
        (r"(a)\1", "back references are not supported"),
        ("(hello", "missing )"),
        ("a**", "bad repetition operator"),
        ("[a", "missing ]"),
        ("a{1000000}", "invalid repetition size"),
        (r"\p{Nothing}", "invalid character class range"),
    ],
)
async def test_an_unusable_pattern_is_refused(grep: Toolbox, pattern: str, said: str) -> None:
    refused = await grep.refused("Grep", pattern=pattern)
    assert refused.startswith(f"pattern: cannot be used: {said}")
    expected = "in the syntax of RE2."
    if "not supported" in said:
        expected = "without look-around or back references."
    assert refused.endswith(f"expected a regular expression {expected}")


async def test_a_pattern_across_lines_without_multiline_is_explained(grep: Toolbox) -> None:
    found = (await grep.said("Grep", pattern=r"os\n\ndef")).split("\n")
    hint = "[Lines are searched one at a time. Set multiline to find text that spans lines.]"
    assert found == ["Nothing matches 'os\\\\n\\\\ndef'.", hint]


async def test_a_named_file_that_is_not_searched_is_refused(grep: Toolbox, workspace: Path) -> None:
    (workspace / "huge.log").write_bytes(b"x" * 10_000_001 + b"\nneedle\n")
    huge = await grep("Grep", pattern="needle", path="huge.log")
    assert (huge.is_error, huge.text.partition(";")[0]) == (
        True,
        "path: is 10,000,009 bytes",
    )
    assert "Grep" not in huge.text
    binary = await grep("Grep", pattern="main", path="data.bin")
    assert binary.is_error
    assert binary.text.startswith("path: 'data.bin' is a binary file of 13 bytes;")


async def test_a_folder_search_names_skipped_files(grep: Toolbox, workspace: Path) -> None:
    for name in ("huge.log", "b/huge.txt", "ignored/huge.log", ".remit/huge.log"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_bytes(b"x" * 10_000_001)
    (workspace / ".gitignore").write_text("ignored\n")
    whole = await grep.said("Grep", pattern="nothing at all")
    large = "2 files over 10 MB (b/huge.txt, huge.log)"
    assert whole == f"Nothing matches 'nothing at all'.\n[Not searched: {large}. {HOW}"
    one = (await grep.said("Grep", pattern="^one", glob="*.txt")).split("\n")
    assert one == ["b/windows.txt", f"[Not searched: 1 file over 10 MB (b/huge.txt). {HOW}"]
    both = (await grep.said("Grep", pattern="def main", path=".", head_limit=1)).split("\n")
    assert both[-1] == f"[Not searched: {large}. {HOW}"
    assert await grep.said("Grep", pattern="def main", type="py") == "a/main.py\na/types.pyi"
    assert "Not searched" not in await grep.said("Grep", pattern="main", path="a")


async def test_some_of_many_skipped_files_are_named(grep: Toolbox, workspace: Path) -> None:
    for number in range(5):
        (workspace / f"c/{number}.bin").write_bytes(b"\0needle\n")
    names = "c/0.bin, c/1.bin, c/2.bin, 2 more"
    found = await grep.said("Grep", pattern="^.needle$", path="c", output_mode="count")
    assert found.endswith(f"\n[Not searched: 5 binary files with a match ({names}). {HOW}")


async def test_an_unknown_type_is_refused_with_the_known_ones(grep: Toolbox) -> None:
    refused = await grep.refused("Grep", pattern="x", type="pyhton")
    assert refused.startswith("type: unknown file type 'pyhton'. Did you mean python? Available: ")
    assert ", rust," in await grep.refused("Grep", pattern="x", type="qqq")
    assert await grep.said("Grep", pattern="main", type="python") == "a/main.py\na/types.pyi"


IGNORED = {
    ".gitignore": (
        "# all\n*.log\n/build/\n!keep.log\nnode_modules\nsecret dir/\ndocs/**/x.md\na[0-9].t"
    ),
    "src/.gitignore": "*.tmp\n!*.log\n/only\n{left,right}.c\nspace.txt \n",
    "app.log": "needle",
    "keep.log": "needle",
    "build/out.txt": "needle",
    "src/build/out.txt": "needle",
    "src/debug.log": "needle",
    "src/x.tmp": "needle",
    "src/only": "needle",
    "src/deep/only": "needle",
    "src/left.c": "needle",
    "src/space.txt": "needle",
    "src/node_modules/m.js": "needle",
    "node_modules/m.js": "needle",
    "secret dir/x": "needle",
    "docs/x.md": "needle",
    "docs/a/b/x.md": "needle",
    "docs/a/b/y.md": "needle",
    "a1.t": "needle",
    "ab.t": "needle",
    ".hidden": "needle",
    ".git/config": "needle",
    "sub/.git": "needle",
    "sub/.remit/x": "needle",
}
SEARCHED = [
    ".hidden",
    "ab.t",
    "docs/a/b/y.md",
    "keep.log",
    "src/build/out.txt",
    "src/debug.log",
    "src/deep/only",
]


@pytest.fixture
def ignoring(workspace: Path) -> Path:
    for name in FILES:
        (workspace / name).unlink()
    for name, text in IGNORED.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return workspace


@pytest.mark.usefixtures("ignoring")
async def test_files_that_gitignore_names_are_not_searched(grep: Toolbox) -> None:
    async def found(**arguments: Any) -> list[str]:
        return (await grep.said("Grep", pattern="needle", **arguments)).split("\n")

    assert await found() == SEARCHED
    assert await found(path="src") == [name for name in SEARCHED if name.startswith("src/")]
    assert await found(glob="*.log") == ["keep.log", "src/debug.log"]
    assert await found(path="app.log") == ["app.log"], "a file that is named is searched"
    assert await found(path="build") == ["build/out.txt"], "so is a folder that is named"
    assert await found(path="src/node_modules") == ["src/node_modules/m.js"]


@pytest.mark.parametrize("line", ["folder{}/sub/*.txt", "[" * 400 + "{}", "**/a*b*{}*d"])
async def test_a_gitignore_file_with_very_many_rules_is_read(
    grep: Toolbox, workspace: Path, line: str
) -> None:
    rules = "\n".join(line.format(number) for number in range(190_000 // (len(line) + 4)))
    (workspace / ".gitignore").write_text(f"{rules}\nhidden.txt\n")
    (workspace / "hidden.txt").write_text("pin\n")
    (workspace / "shown.txt").write_text("pin\n")
    assert await grep.said("Grep", pattern="^pin$") == "shown.txt"


def test_ripgrep_ignores_all_other_configuration() -> None:
    words = ripgrep_arguments(Expression("--pre=sh", True, False), ["*.py"], "src")
    end = words.index("--")
    assert words[end + 1 :] == ["--pre=sh", "./src"]
    told = {"--no-config", "--no-follow", "--null", "--engine=default", "--ignore-case"}
    assert told | {"--type-add=wanted:*.py", "--type=wanted"} <= set(words[:end])
    assert words[end - 2 : end] == ["--iglob=!.git", "--iglob=!.remit"]


@pytest.mark.parametrize(
    "script",
    [
        "echo it is broken; exit 7",
        "echo 'regex parse error'; exit 2",
        r"printf './gone.txt\000./a/main.py\000./a/app.ts\000'",
        "kill -9 $$",
    ],
)
async def test_the_output_of_ripgrep_is_always_checked(workspace: Path, script: str) -> None:
    """If it fails, the search goes on without it; what it lists is looked at again."""
    fake = workspace / "rg"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    call = Toolbox(workspace, box="unsandboxed", rg=str(fake))
    found = await call.said("Grep", pattern=r"def main\(", output_mode="count", glob="*.py")
    assert found == "a/main.py:1"
    await call.host.close()


async def test_a_search_that_takes_too_long_is_stopped(grep: Toolbox) -> None:
    """Each match of this looks at all of the text that follows."""
    (grep.workspace / "slow.txt").write_bytes(b"a\n" * 3_000_000)
    slow: dict[str, Any] = {"pattern": "a.*z|a", "multiline": True, "output_mode": "count"}
    outcome = await grep("Grep", seconds=1, path="slow.txt", **slow)
    assert outcome.is_error
    assert outcome.text.startswith("Grep was stopped after 1 second")


async def test_names_that_are_not_unicode_are_found(grep: Toolbox) -> None:
    (grep.workspace / os.fsdecode(b"\xff.txt")).write_text("needle in it")
    assert await grep.said("Grep", pattern="needle in") == r"\xff.txt"
