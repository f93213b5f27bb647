"""Patterns for paths: what they match, and that none of them takes long."""

from contextlib import suppress
from fnmatch import fnmatchcase

import pytest
from hypothesis import given as for_any
from hypothesis import strategies as st

from remit.adapters.tools.search.path_glob import GlobPattern
from remit.errors import InvalidParam


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "x/y/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/b/a.py", False),
        ("src/*.py", "a/src/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/b/c/a.py", True),
        ("src/**/*.py", "src/b/c/a.pyc", False),
        ("src/**", "src/a/b", True),
        ("**", "a/b/c", True),
        ("**/test_*/**", "a/test_x/y", True),
        ("**/*.{ts,tsx}", "a/b.tsx", True),
        ("**/*.{ts,tsx}", "a/b.tsxx", False),
        ("{a,b{c,d}}/x", "bd/x", True),
        ("{a,b{c,d}}/x", "b/x", False),
        ("{,a}b", "b", True),
        ("[a-c]?.txt", "b1.txt", True),
        ("[!a-c]?.txt", "b1.txt", False),
        ("[^a-c]?.txt", "d1.txt", True),
        ("x/[]]", "x/]", True),
        ("x/[!]]", "x/a", True),
        ("x/[a-]", "x/-", True),
        ("a?b", "a/b", False),
        ("x[!a]y", "x/y", False),
        ("a\\*b", "a*b", True),
        ("a\\*b", "axb", False),
        ("a\\", "a\\", True),
        ("./src/a", "src/a", True),
        ("/src/a", "src/a", True),
        ("a**b", "axxb", True),
        ("a**b", "ax/xb", False),
        ("}", "}", True),
        ("a,b", "a,b", True),
        ("ü*", "über", True),
    ],
)
def test_a_pattern_matches_what_it_says(pattern: str, path: str, matches: bool) -> None:
    assert GlobPattern(pattern).matches(path) == matches


@pytest.mark.parametrize("pattern", ["[a", "[", "[!", "[]", "{a", "{a,{b}", "{" * 200 + "}" * 200])
def test_a_pattern_that_is_not_closed_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidParam, match="pattern: has"):
        GlobPattern(pattern)


@for_any(st.text("ab*?", min_size=1, max_size=12), st.text("ab", max_size=12))
def test_wildcards_behave_like_a_shell(pattern: str, name: str) -> None:
    assert GlobPattern(f"x/{pattern.replace('**', '*')}").matches(f"x/{name}") == fnmatchcase(
        name, pattern.replace("**", "*")
    )


@for_any(st.text("ab*?[]{},!^-\\/", max_size=30), st.text("ab/[]{},\\", max_size=30))
def test_junk_is_read_or_refused(pattern: str, path: str) -> None:
    with suppress(InvalidParam):
        GlobPattern(pattern).matches(path)


@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 400 + "b",
        "{a,aa}" * 100 + "b",
        "**/" * 300 + "x",
        "{*,**/*}" * 90 + "b",
        "?*" * 400 + "b",
        "[a-z]*" * 160 + "b",
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """Each would keep an engine that tries one way after the other busy for longer than anybody
    waits: that it ends is the proof.
    """
    for path in ("a" * 2000 + "!", "a/" * 1000 + "!"):
        assert not GlobPattern(pattern).matches(path)
