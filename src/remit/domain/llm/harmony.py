"""The channels of OpenAI's open models (gpt-oss), if a server leaves them in the text of an answer.

`analysis` is a thought, `commentary` may call a tool, and `final` is the answer. Some servers keep
the special tokens around these names, others drop them: `analysisCheck it.assistantfinalDone.`
"""

import re
from collections import deque

_FIRST = re.compile(r"""(?x)
    \s*+ (?: (?:<\|start\|>assistant)? <\|channel\|> (?P<channel>analysis|final) <\|message\|>
      | analysis (?=\S) )
    """)
_NEXT = re.compile(r"""(?x)
    (?:<\|(?:end|call)\|>)?
    (?P<start> (?:<\|start\|>)? assistant (?:<\|channel\|>)?
      (?: (?P<final>final) (?:<\|message\|>)? | (?:commentary|analysis) \s*+ to=functions\. ) )
    """)
"""The start of an answer or of a call after a thought."""
_END = re.compile(r"<\|(?:return|end)\|>\s*+\Z")


def without_channels(text: str) -> tuple[str, str]:
    """Return the thoughts before the last answer or call in a text, and the text from there on."""
    first = _FIRST.match(text)
    if first is None:
        return "", text
    last = next(iter(deque(_NEXT.finditer(text, first.end()), maxlen=1)), None)
    if last is not None:
        start = last.end() if last["final"] else last.start("start")
        return text[first.end() : last.start()].strip(), _without_end(text[start:])
    if first["channel"] == "final":
        return "", _without_end(text[first.end() :])
    return "", text


def _without_end(text: str) -> str:
    return _END.sub("", text, count=1).lstrip()
