"""Messages: what is stored comes back, and what is shown holds no secret."""

import json

import pytest

from remit.domain.llm.failures import ModelFailed, Price, excerpt, storable
from remit.domain.llm.messages import (
    Message,
    TextPart,
    Thinking,
    ToolCall,
    ToolResult,
    plain,
    restore,
    user,
)
from remit.errors import UnknownEvent

MESSAGES = [
    user("Hi"),
    Message(
        "assistant",
        (
            Thinking("hm", "anthropic", {"signature": "s"}),
            TextPart("Wait."),
            ToolCall("1", "Read", {"file_path": "x"}),
        ),
    ),
    Message("assistant", (ToolCall("2", "Read", {}, "{", "The arguments are not JSON."),)),
    Message(
        "tool", (ToolResult("1", "Read", "text"), ToolResult("2", "Read", "no", is_error=True))
    ),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_stored_message_comes_back(message: Message) -> None:
    back = restore(json.loads(json.dumps(plain(message))))
    assert back == message
    assert [type(part) for part in back.parts] == [type(part) for part in message.parts]


def test_a_stored_call_does_not_repeat_its_arguments() -> None:
    stored = plain(Message("assistant", (ToolCall("1", "Read", {"a": 1}, '{"a": 1}'),)))
    assert stored["parts"] == [
        {"type": "tool_call", "call_id": "1", "name": "Read", "arguments": {"a": 1}}
    ]


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"role": "user", "parts": [{"type": "smell"}]},
        {"role": "user", "parts": [{"type": "text"}]},
    ],
)
def test_a_message_of_another_shape_is_not_guessed(raw: dict[str, object]) -> None:
    with pytest.raises(UnknownEvent, match="message"):
        restore(raw)


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abcdefghijklmnop1234",
        "Bearer abcdefgh",
        "api_key=abcdefgh",
        "x-api-key: abcdefgh",
        "AIzaSyA1234567890abcdefghij",
        "f" * 64,
        "my-own-key",
    ],
)
def test_an_excerpt_is_short_and_holds_no_key(secret: str) -> None:
    shown = excerpt(f"<p>It\x1b[31m broke: {secret} " + "and so on " * 100, ("my-own-key",))
    assert len(shown) <= 200
    assert shown.startswith("It [31m broke:")
    assert "abcdefgh" not in shown
    assert secret not in shown


@pytest.mark.parametrize(
    "said",
    [
        "The security token included in the request is invalid.",
        "Invalid API-key provided.",
        "Invalid max_tokens: the token limit is 4096",
        "Set it or pass it via `DeepSeekProvider(api_key=...)` to use the provider.",
        "Invalid proxy server token passed. Unable to find token in cache",
        "x-api-key header is required",
        "Provide your API key in an Authorization header using Bearer auth",
        "Basic authentication failed: Bearer token expected, not a password",
        "Unexpected token 'function' at position 5",
    ],
)
def test_ordinary_words_of_a_vendor_stay(said: str) -> None:
    assert excerpt(said) == said


@pytest.mark.parametrize(
    "said",
    [
        "the token {} is wrong",
        "password '{}'",
        '"api_key": "{}"',
        "Authorization: Bearer {}",
        "?token={}&x=1",
        "secret={}",
        "Basic {}",
    ],
)
@pytest.mark.parametrize("key", ["hunter2x", "dXNlcjpwYXNz", "a1b2-c3d4", "abCdefGhijklMnop"])
def test_a_key_after_its_name_is_removed(said: str, key: str) -> None:
    assert key not in excerpt(said.format(key))


@pytest.mark.parametrize("key", ["", "k", "token", "sk-1"])
def test_a_short_key_is_left_alone_inside_other_words(key: str) -> None:
    said = "The limit of 1024 tokens is reached by task-10."
    assert excerpt(said, (key,)) == said


@pytest.mark.parametrize("key", ["k", "EMPTY", "sk-1", "a.b"])
def test_a_short_key_that_stands_alone_is_removed(key: str) -> None:
    assert (
        excerpt(f"The key {key}, or '{key}', is wrong.", (key,))
        == "The key [redacted], or '[redacted]', is wrong."
    )


def test_a_failure_knows_whether_trying_again_can_help() -> None:
    assert ModelFailed("authentication", "no").permanent
    assert not ModelFailed("overloaded", "later", retry_after=3).permanent


def test_cached_tokens_cost_what_other_input_does_unless_they_have_a_price() -> None:
    assert Price(1, 2).of(1_000_000, 500_000, 400_000) == pytest.approx(2.0)
    assert Price(1, 2, 0).of(1_000_000, 500_000, 400_000) == pytest.approx(1.6)


def test_text_is_only_changed_where_no_store_could_keep_it() -> None:
    assert storable("wörld 世界 😀") == "wörld 世界 😀"
    assert storable("\ud800\0") == "?\ufffd"
