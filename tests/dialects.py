"""Strict servers: each refuses what the real ones of its kind refuse, in their public wording.

A rule is a plain predicate over the body of a request with the refusal that the server would
answer. A server checks all of its rules, refuses with the first that is broken, and else answers
what its script says.
"""

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.agents.endpoint import Body, RuledServer
from tests.modelserver import Dialect, Reply, Status

SAID: dict[str, dict[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_text())
"""The public wording of each refusal, by dialect and rule; `{}` stands for what breaks the rule."""
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SIGNATURES = ("SIGNED==", "skip_thought_signature_validator")
"""The signatures that Gemini takes: its own, and the documented one for calls of other models."""
MAX_TOOLS = 128
MAX_DESCRIPTION = 1024
MAX_REPEATS = 2000
KNOWN_TO_GEMINI = frozenset(
    (
        "type",
        "description",
        "properties",
        "required",
        "items",
        "enum",
        "format",
        "nullable",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
    )
)
KNOWN_TO_MISTRAL = frozenset(
    [
        "model",
        "messages",
        "tools",
        "tool_choice",
        "temperature",
        "max_tokens",
        "stream",
        "stop",
        "parallel_tool_calls",
        "response_format",
    ]
)


class Rule(NamedTuple):
    """A rule of an endpoint, and its refusal."""

    breaks: Callable[[Body], str]
    """The part of a request that breaks the rule, as the refusal names it; empty if none does."""
    refusal: Callable[[str], Status]


def openai_error(
    message: str, code: str | None = None, *, status: int = 400, param: str | None = None
) -> Callable[[str], Status]:
    """OpenAI's shape of an error; `{}` stands for what breaks the rule."""

    def refuse(what: str) -> Status:
        error = {
            "message": message.replace("{}", what),
            "type": "invalid_request_error",
            "param": param,
            "code": code,
        }
        return Status(status, {"error": error})

    return refuse


def mistral_error(
    message: str, code: str, kind: str = "invalid_request_error"
) -> Callable[[str], Status]:
    return lambda what: Status(
        400,
        {
            "object": "error",
            "message": message.replace("{}", what),
            "type": kind,
            "param": None,
            "code": code,
        },
    )


def has(name: str) -> Callable[[Body], str]:
    return lambda body: name if name in body else ""


# The content of a request.


def tools(body: Body) -> list[dict[str, Any]]:
    return [tool.get("function") or tool for tool in body.get("tools") or ()]


def schemas(body: Body) -> Iterator[dict[str, Any]]:
    """Every schema that is sent, those inside others too."""
    left: list[Any] = [tool.get("parameters") or tool.get("input_schema") for tool in tools(body)]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            yield found
            left += (found.get("properties") or {}).values()
            left += [found[name] for name in ("items", "additionalProperties") if name in found]
            left += [item for name in ("anyOf", "oneOf", "allOf") for item in found.get(name) or ()]
            left += (found.get("$defs") or {}).values()


def roles(body: Body) -> list[str]:
    return [message["role"] for message in body["messages"]]


def pairs(body: Body) -> list[tuple[str, str]]:
    return list(pairwise(roles(body)))


# Predicates.


def unanswered(body: Body) -> str:
    """Calls without a result right after them, or results without a call."""
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return str(message["tool_call_id"])
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return ", ".join(waiting)
        else:
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
    return ", ".join(waiting)


def wrong_name(body: Body) -> str:
    said = body.get("messages") or ()
    called = [
        call["function"]["name"] for message in said for call in message.get("tool_calls") or ()
    ]
    called += [
        item["name"] for item in body.get("input") or () if item.get("type") == "function_call"
    ]
    return next(
        (
            name
            for name in (*(tool["name"] for tool in tools(body)), *called)
            if not NAME.fullmatch(name)
        ),
        "",
    )


def doubled(body: Body) -> str:
    return next(
        (
            name
            for name, number in Counter(tool["name"] for tool in tools(body)).items()
            if number > 1
        ),
        "",
    )


def too_many_tools(body: Body) -> str:
    return str(len(tools(body))) if len(tools(body)) > MAX_TOOLS else ""


def without_properties(body: Body) -> str:
    roots = [
        (tool["name"], tool.get("parameters") or tool.get("input_schema") or {})
        for tool in tools(body)
    ]
    return next(
        (name for name, root in roots if root.get("type") != "object" or "properties" not in root),
        "",
    )


def array_without_items(body: Body) -> str:
    return (
        "items"
        if any(schema.get("type") == "array" and "items" not in schema for schema in schemas(body))
        else ""
    )


def alternatives_at_the_top(body: Body) -> str:
    roots = [
        (tool["name"], tool.get("parameters") or tool.get("input_schema") or {})
        for tool in tools(body)
    ]
    return next(
        (name for name, root in roots if root.keys() & {"oneOf", "anyOf", "allOf", "enum", "not"}),
        "",
    )


def long_id(body: Body) -> str:
    ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
    return next((found for found in ids if len(found) > 40), "")


def long_description(body: Body) -> str:
    lengths = [len(tool.get("description") or "") for tool in tools(body)]
    return next((str(found) for found in lengths if found > MAX_DESCRIPTION), "")


def choice_without_tools(body: Body) -> str:
    return next(
        (
            name
            for name in ("tool_choice", "parallel_tool_calls")
            if name in body and not body.get("tools")
        ),
        "",
    )


def empty(body: Body) -> str:
    return next(
        (m["role"] for m in body["messages"] if not m.get("content") and not m.get("tool_calls")),
        "",
    )


def user_after_tool(body: Body) -> str:
    return "user" if ("tool", "user") in pairs(body) else ""


def not_alternating(body: Body) -> str:
    """The problem that a template with only user and assistant would find.

    Results of tools are made user messages before it.
    """
    plain = ["user" if role == "tool" else role for role in roles(body) if role != "system"]
    return (
        ""
        if all(role == ("user", "assistant")[number % 2] for number, role in enumerate(plain))
        else "roles"
    )


def not_alternating_but_for_tools(body: Body) -> str:
    """The problem that Mistral's template would find: tool calls and results do not count."""
    spoken = [
        m["role"]
        for m in body["messages"]
        if m["role"] in ("user", "assistant") and not m.get("tool_calls")
    ]
    is_wrong = any(role != ("user", "assistant")[number % 2] for number, role in enumerate(spoken))
    return "roles" if is_wrong else ""


def high_bound(body: Body) -> str:
    bounds = ("maxLength", "minLength", "maxItems", "minItems")
    return next(
        (
            name
            for schema in schemas(body)
            for name in bounds
            if (schema.get(name) or 0) > MAX_REPEATS
        ),
        "",
    )


def group_in_pattern(body: Body) -> str:
    patterns = [
        schema["pattern"] for schema in schemas(body) if isinstance(schema.get("pattern"), str)
    ]
    return next(
        (
            pattern
            for pattern in patterns
            if "(?" in pattern or not (pattern[:1] == "^" and pattern[-1:] == "$")
        ),
        "",
    )


def untyped(body: Body) -> str:
    """A schema without a type, as those of values of any type; an empty one is accepted."""
    typed = {"type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"}
    found = [schema for schema in schemas(body) if schema and typed.isdisjoint(schema)]
    return next(map(json.dumps, found), "")


def mixed_alternatives(body: Body) -> str:
    """Alternatives beside other keywords."""
    is_mixed = any("anyOf" in schema and len(schema) > 1 for schema in schemas(body))
    return "anyOf" if is_mixed else ""


def unknown_keyword(body: Body) -> str:
    found = {name for schema in schemas(body) for name in schema} - KNOWN_TO_GEMINI
    listed = {"type" for schema in schemas(body) if isinstance(schema.get("type"), list)}
    return min(found | listed, default="")


def unsigned_call(body: Body) -> str:
    """The first call of an answer that lacks its signature; later ones need none."""
    for message in body["messages"]:
        for call in (message.get("tool_calls") or ())[:1]:
            google = call.get("extra_content", {}).get("google", {})
            if google.get("thought_signature") not in SIGNATURES:
                return str(call["function"]["name"])
    return ""


def odd_call_id(body: Body) -> str:
    ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
    return next((found for found in ids if not re.fullmatch(r"[a-zA-Z0-9]{9}", found)), "")


def unknown_to_mistral(body: Body) -> str:
    return min(body.keys() - KNOWN_TO_MISTRAL, default="")


def thoughts_of_mistral(body: Body) -> str:
    return (
        "reasoning_content"
        if any("reasoning_content" in message for message in body["messages"])
        else ""
    )


def extra(what: str) -> Status:
    """How Mistral refuses a field that it does not know."""
    detail = [
        {
            "type": "extra_forbidden",
            "loc": ["body", what],
            "msg": "Extra inputs are not permitted",
            "input": "…",
        }
    ]
    return Status(
        422,
        {
            "object": "error",
            "message": {"detail": detail},
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        },
    )


def gemini(message: str) -> Callable[[str], Status]:
    return lambda what: Status(
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": message.replace("{}", what),
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    )


def llama(message: str, status: int, kind: str) -> Callable[[str], Status]:
    return lambda what: Status(
        status, {"error": {"code": status, "message": message.replace("{}", what), "type": kind}}
    )


def vllm(wording: str) -> Callable[[str], Status]:
    return lambda what: Status(
        400,
        {
            "object": "error",
            "message": wording.replace("{}", what),
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    )


def xai(message: str) -> Callable[[str], Status]:
    return lambda what: Status(
        400, {"code": "Client specified an invalid argument", "error": message.replace("{}", what)}
    )


ALL = (
    Rule(wrong_name, openai_error(SAID["all"]["wrong_name"], "invalid_value")),
    Rule(doubled, openai_error(SAID["all"]["doubled"])),
    Rule(too_many_tools, openai_error(SAID["all"]["too_many_tools"])),
    Rule(
        unanswered,
        openai_error(SAID["all"]["unanswered"]),
    ),
    Rule(choice_without_tools, openai_error(SAID["all"]["choice_without_tools"])),
    Rule(empty, openai_error(SAID["all"]["empty"])),
)
"""What no endpoint of the chat completions kind takes."""

OPENAI = (
    *ALL,
    Rule(
        has("max_tokens"),
        openai_error(SAID["openai"]["max_tokens"], "unsupported_parameter", param="max_tokens"),
    ),
    Rule(
        has("temperature"),
        openai_error(SAID["openai"]["temperature"], "unsupported_value", param="temperature"),
    ),
    Rule(
        without_properties,
        openai_error(SAID["openai"]["without_properties"], "invalid_function_parameters"),
    ),
    Rule(
        array_without_items,
        openai_error(SAID["openai"]["array_without_items"], "invalid_function_parameters"),
    ),
    Rule(
        alternatives_at_the_top,
        openai_error(SAID["openai"]["alternatives_at_the_top"], "invalid_function_parameters"),
    ),
    Rule(long_id, openai_error(SAID["openai"]["long_id"], "string_above_max_length")),
    Rule(
        long_description,
        openai_error(SAID["openai"]["long_description"], "string_above_max_length"),
    ),
)
MISTRAL = (
    *ALL,
    Rule(unknown_to_mistral, extra),
    Rule(thoughts_of_mistral, extra),
    Rule(
        user_after_tool,
        mistral_error(SAID["mistral"]["user_after_tool"], "3230", "invalid_request_message_order"),
    ),
    Rule(
        odd_call_id, mistral_error(SAID["mistral"]["odd_call_id"], "3280", "invalid_function_call")
    ),
)
GEMINI = (
    *ALL,
    Rule(has("parallel_tool_calls"), gemini(SAID["gemini"]["parallel_tool_calls"])),
    Rule(unknown_keyword, gemini(SAID["gemini"]["unknown_keyword"])),
    Rule(array_without_items, gemini(SAID["gemini"]["array_without_items"])),
)
GEMINI_3 = (*GEMINI, Rule(unsigned_call, gemini(SAID["gemini"]["unsigned_call"])))
VERTEX = (
    *ALL,
    Rule(untyped, gemini(SAID["vertex"]["untyped"])),
    Rule(mixed_alternatives, gemini(SAID["vertex"]["mixed_alternatives"])),
)
LLAMA_CPP = (
    *ALL,
    Rule(high_bound, llama(SAID["llama_cpp"]["high_bound"], 400, "invalid_request_error")),
    Rule(
        group_in_pattern, llama(SAID["llama_cpp"]["group_in_pattern"], 400, "invalid_request_error")
    ),
    Rule(untyped, llama(SAID["llama_cpp"]["untyped"], 400, "invalid_request_error")),
)
GEMMA = (
    *(rule for rule in LLAMA_CPP if rule.breaks is not unanswered),
    Rule(not_alternating, llama(SAID["gemma"]["not_alternating"], 500, "server_error")),
)
"""A llama.cpp server with the template of Gemma, which makes results of tools messages of the
user.
"""
GEMMA_2 = (
    *GEMMA,
    Rule(
        lambda body: "system" if "system" in roles(body) else "",
        llama(SAID["gemma"]["system_role"], 500, "server_error"),
    ),
)
"""The same with an older template, which has no system role either."""
VLLM = (
    *ALL,
    Rule(user_after_tool, vllm(SAID["vllm"]["user_after_tool"])),
    Rule(not_alternating_but_for_tools, vllm(SAID["vllm"]["not_alternating_but_for_tools"])),
)
OLLAMA = (
    *ALL,
    Rule(has("reasoning_effort"), openai_error(SAID["ollama"]["reasoning_effort"])),
)
XAI = (
    *ALL,
    Rule(has("reasoning_effort"), xai(SAID["xai"]["reasoning_effort"])),
    Rule(has("stop"), xai(SAID["xai"]["stop"])),
)


# Anthropic messages.


def blocks(body: Body) -> list[dict[str, Any]]:
    return [block for message in body["messages"] for block in message["content"]]


def anthropic(message: str) -> Callable[[str], Status]:
    return lambda what: Status(
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": message.replace("{}", what)},
        },
    )


def without_result(body: Body) -> str:
    waiting: set[str] = set()
    for message in body["messages"]:
        results = [
            block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"
        ]
        if set(results) != waiting:
            return ", ".join(sorted(waiting ^ set(results)))
        waiting = {block["id"] for block in message["content"] if block["type"] == "tool_use"}
    return ", ".join(sorted(waiting))


def blank(body: Body) -> str:
    return (
        "text"
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks(body))
        else ""
    )


def marks(body: Body) -> str:
    found = [
        block
        for block in (*body.get("tools", ()), *body.get("system", ()), *blocks(body))
        if "cache_control" in block
    ]
    return str(len(found)) if len(found) > 4 else ""


def not_in_turn(body: Body) -> str:
    wrong = any(
        role != ("user", "assistant")[number % 2] for number, role in enumerate(roles(body))
    )
    return "roles" if wrong else ""


def odd_use_id(body: Body) -> str:
    ids = [block["id"] for block in blocks(body) if block["type"] == "tool_use"]
    return next((found for found in ids if not re.fullmatch(r"[a-zA-Z0-9_-]+", found)), "")


def result_after_text(body: Body) -> str:
    """Results of tools come first in a message of the user."""
    for message in body["messages"]:
        kinds = [block["type"] for block in message["content"]]
        if "tool_result" in kinds and kinds != sorted(
            kinds, key=lambda kind: kind != "tool_result"
        ):
            return "tool_result"
    return ""


def changed_thoughts(body: Body) -> str:
    """A thought whose signature is not of its text; redacted ones carry theirs in their data."""
    for block in blocks(body):
        if block["type"] == "thinking" and block["signature"] != signature(block["thinking"]):
            return "thinking"
        if block["type"] == "redacted_thinking" and not str(block.get("data", "")).startswith(
            "sealed:"
        ):
            return "redacted_thinking"
    return ""


def forgotten_thoughts(body: Body) -> str:
    """A call of tools whose answer began with thoughts: the script of the server says which ids
    those have.
    """
    for message in body["messages"]:
        used = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        thought = {block["type"] for block in message["content"]} & {
            "thinking",
            "redacted_thinking",
        }
        if any(found.startswith("thought") for found in used) and len(thought) < 2:
            return "tool_use"
    return ""


def signature(thought: str) -> str:
    """The signature of a thought by the server."""
    return f"signed:{len(thought)}:{thought[:8]}"


ANTHROPIC = (
    Rule(wrong_name, anthropic(SAID["anthropic"]["wrong_name"])),
    Rule(too_many_tools, anthropic(SAID["anthropic"]["too_many_tools"])),
    Rule(without_result, anthropic(SAID["anthropic"]["without_result"])),
    Rule(result_after_text, anthropic(SAID["anthropic"]["result_after_text"])),
    Rule(blank, anthropic(SAID["anthropic"]["blank"])),
    Rule(marks, anthropic(SAID["anthropic"]["marks"])),
    Rule(not_in_turn, anthropic(SAID["anthropic"]["not_in_turn"])),
    Rule(odd_use_id, anthropic(SAID["anthropic"]["odd_use_id"])),
    Rule(alternatives_at_the_top, anthropic(SAID["anthropic"]["alternatives_at_the_top"])),
    Rule(without_properties, anthropic(SAID["anthropic"]["without_properties"])),
    Rule(changed_thoughts, anthropic(SAID["anthropic"]["changed_thoughts"])),
    Rule(forgotten_thoughts, anthropic(SAID["anthropic"]["forgotten_thoughts"])),
)

# OpenAI's Responses API.


def unpaired(body: Body) -> str:
    """A call without its output, an output without its call, or a thought with nothing after it."""
    waiting: list[str] = []
    before = ""
    for item in (*body["input"], {}):
        kind = str(item.get("type", item.get("role", "")))
        if before == "reasoning" and kind not in ("reasoning", "function_call", "assistant"):
            return "reasoning"
        if kind == "function_call":
            waiting.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in waiting:
                return str(item["call_id"])
            waiting.remove(item["call_id"])
        elif waiting and kind in ("user", ""):
            return ", ".join(waiting)
        before = kind
    return ""


def unsealed(body: Body) -> str:
    thoughts = [item for item in body["input"] if item.get("type") == "reasoning"]
    is_open = any("id" in item or item.get("encrypted_content") != "sealed" for item in thoughts)
    return "reasoning" if is_open else ""


def not_of_responses(body: Body) -> str:
    known = "model input instructions tools tool_choice stream store include reasoning"
    more = "max_output_tokens temperature parallel_tool_calls"
    return min(body.keys() - set(f"{known} {more}".split()), default="")


def stored(body: Body) -> str:
    return "" if body.get("store") is False else "store"


RESPONSES = (
    Rule(not_of_responses, openai_error(SAID["responses"]["not_of_responses"])),
    Rule(stored, openai_error(SAID["responses"]["stored"])),
    Rule(wrong_name, openai_error(SAID["all"]["wrong_name"])),
    Rule(too_many_tools, openai_error(SAID["all"]["too_many_tools"])),
    Rule(without_properties, openai_error(SAID["openai"]["without_properties"])),
    Rule(array_without_items, openai_error(SAID["openai"]["array_without_items"])),
    Rule(long_description, openai_error(SAID["openai"]["long_description"])),
    Rule(unpaired, openai_error(SAID["responses"]["unpaired"])),
    Rule(unsealed, openai_error(SAID["responses"]["unsealed"])),
    Rule(has("reasoning"), openai_error(SAID["responses"]["reasoning"], param="reasoning.effort")),
)


def as_messages(body: Body) -> Body:
    """A request of the Responses API as one of chat completions, for scripts that read those."""
    messages: list[dict[str, Any]] = []
    for item in body["input"]:
        kind = item.get("type")
        if kind == "function_call":
            call = {"id": item["call_id"], "function": {"name": item["name"]}}
            if not messages or not messages[-1].get("tool_calls"):
                messages.append({"role": "assistant", "content": "", "tool_calls": []})
            messages[-1]["tool_calls"].append(call)
        elif kind == "function_call_output":
            messages.append(
                {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
            )
        elif kind is None:
            messages.append(item)
    return {**body, "messages": messages}


DIALECTS: dict[str, tuple[Rule, ...]] = {
    "openai": OPENAI,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "mistral": MISTRAL,
    "gemini": GEMINI,
    "gemini-3": GEMINI_3,
    "vertex": VERTEX,
    "llama.cpp": LLAMA_CPP,
    "gemma": GEMMA,
    "gemma-2": GEMMA_2,
    "vllm": VLLM,
    "ollama": OLLAMA,
    "xai": XAI,
}


def refusal(dialect: str, body: Body) -> Status | None:
    """How a server of a dialect refuses a request; None if it takes it."""
    for rule in DIALECTS[dialect]:
        if what := rule.breaks(body):
            return rule.refusal(what)
    return None


class StrictServer(RuledServer):
    """A server that answers by script what it does not refuse, and remembers its refusals."""

    def __init__(self, name: str, script: Callable[[Body], Awaitable[Reply]]) -> None:
        self.name = name
        self.refusals: list[Status] = []
        self._script = script
        own: dict[str, Dialect] = {"anthropic": "anthropic", "responses": "responses"}
        super().__init__(self._checked, own.get(name, "openai"))

    async def _checked(self, body: Body) -> Reply:
        refused = refusal(self.name, body)
        if refused is None:
            return await self._script(body)
        self.refusals.append(refused)
        return refused

    def shown(self) -> list[str]:
        """Its refusals, shown if a test fails."""
        return [json.dumps(refused.body) for refused in self.refusals]
