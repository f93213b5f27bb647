"""Fail if the code is denser than the limits below. Lower them when the code improves."""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDER = Path("src/remit")
MAX_DECISIONS = 19.8
"""Branches, loops, handlers, comprehensions and conditions per 100 lines of functions."""
MAX_TOKENS = 7.5
"""Names, operators, numbers and strings per line of code."""
MAX_COLUMNS = 100
MAX_MODULES = 14
"""Modules of one package."""

DECISIONS = (
    ast.If,
    ast.For,
    ast.While,
    ast.AsyncFor,
    ast.ExceptHandler,
    ast.BoolOp,
    ast.IfExp,
    ast.comprehension,
    ast.match_case,
)
COUNTED = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}


def main() -> int:
    """Print each figure that is above its limit; return 1 if there is one."""
    faults = list(_faults(sorted(FOLDER.rglob("*.py"))))
    for fault in faults:
        print(f"density: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _faults(paths: list[Path]) -> Iterator[str]:
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    trees = [ast.parse(text) for text in texts.values()]
    functions = [function for tree in trees for function in _outer_functions(tree)]
    decisions = sum(isinstance(node, DECISIONS) for each in functions for node in ast.walk(each))
    lines = sum((each.end_lineno or each.lineno) - each.lineno + 1 for each in functions)
    yield from _above("decisions per 100 function lines", 100 * decisions / lines, MAX_DECISIONS)
    tokens, code_lines = _tokens(texts.values())
    yield from _above("tokens per line of code", tokens / code_lines, MAX_TOKENS)
    for path, text in texts.items():
        longest = max((len(line) for line in text.splitlines()), default=0)
        yield from _above(f"columns in {path}", longest, MAX_COLUMNS)
    packages = Counter(path.parent for path in paths if path.name != "__init__.py")
    for package, count in packages.items():
        yield from _above(f"modules in {package}", count, MAX_MODULES)


def _above(what: str, found: float, limit: float) -> Iterator[str]:
    if found > limit:
        yield f"{found:.1f} {what}, at most {limit:g}"


def _outer_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions that are not nested in another one, so that each line counts once."""
    nodes: list[ast.AST] = list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            nodes += node.body


def _tokens(texts: Iterable[str]) -> tuple[int, int]:
    """The number of tokens, and of lines with tokens."""
    tokens = code_lines = 0
    for text in texts:
        found = tokenize.generate_tokens(io.StringIO(text).readline)
        rows = [token.start[0] for token in found if token.type in COUNTED]
        tokens += len(rows)
        code_lines += len(set(rows))
    return tokens, code_lines


if __name__ == "__main__":
    sys.exit(main())
