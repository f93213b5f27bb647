"""Redaction: what is removed from the text of an endpoint, and what is kept."""

import json
from base64 import b64encode, urlsafe_b64encode
from time import process_time
from urllib.parse import quote

import pytest

from remit.domain.llm.failures import excerpt
from remit.domain.text.redaction import shown_url, url_secrets

KEY = 'Zq7/canary+"main".0123&vLoWxYz'
"""A key with characters that encodings change; no pattern of usual keys fits it."""
UUID = "8f14e45f-ceea-467f-a9ed-5b5c3d1d9d6b"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


ALTERED = {
    "as it is": KEY,
    "upper case": KEY.upper(),
    "lower case": KEY.lower(),
    "in a URL": quote(KEY, safe=""),
    "in a URL, lower case": quote(KEY, safe="").lower(),
    "in a path": quote(KEY),
    "in JSON": json.dumps(KEY)[1:-1],
    "in JSON, escaped slash": json.dumps(KEY)[1:-1].replace("/", "\\/"),
    "in JSON in JSON": json.dumps(json.dumps(KEY))[1:-1],
    "in HTML": KEY.replace("&", "&amp;").replace('"', "&quot;"),
    "Base64": encoded(KEY),
    "Base64 after a user": encoded(f"user:{KEY}"),
    "Base64 after a longer user": encoded(f"users:{KEY}"),
    "Base64 before a colon": encoded(f"{KEY}:"),
    "Base64 for URLs": urlsafe_b64encode(f"a:{KEY}".encode()).decode(),
    "first characters": f"{KEY[:8]}...",
    "last characters": f"...{KEY[-8:]}",
    "in the middle": KEY[9:18],
    "masked": f"{KEY[:6]}*****{KEY[-4:]}",
    "masked with dots": f"{KEY[:3]}...{KEY[-4:]}",
    "masked with an ellipsis": f"{KEY[:3]}\u2026{KEY[-4:]}",
    "masked at the end": f"{KEY[:5]}****",
    "masked at the start": f"****{KEY[-4:]}",
    "masked with x": f"{KEY[:4]}xxxxxxxx{KEY[-4:]}",
    "masked in upper case": f"{KEY[:6]}*****{KEY[-4:]}".upper(),
}


@pytest.mark.parametrize("form", ALTERED)
def test_a_known_secret_is_removed_in_every_form(form: str) -> None:
    shown = excerpt(f"wrong credential given, {ALTERED[form]} was not found", ("another-one", KEY))
    kept = shown.removeprefix("wrong credential given, ").removesuffix(" was not found")
    assert len(kept) < len(shown), shown
    assert kept.strip("\"\\='&.") == "[redacted]", shown


@pytest.mark.parametrize(
    "secret", ["abcdefgh", "12345678", "sk-abc12345defg", "correct horse battery"]
)
@pytest.mark.parametrize("alter", [str.upper, quote, encoded])
def test_a_short_or_plain_secret_is_removed_in_every_form(secret: str, alter: object) -> None:
    assert callable(alter)
    assert excerpt(f"It was {alter(secret)}!", (secret,)).strip("=!") == "It was [redacted]"


def test_a_masked_text_that_is_not_of_a_known_secret_stays() -> None:
    said = "Wait... a key looks like sk-... or ab****yz."
    assert excerpt(said, ("sk-abc12345defg", KEY)) == said


def test_seven_characters_of_a_secret_are_not_taken_for_it() -> None:
    said = "The canary+ sang; the limit is 0123&."
    assert excerpt(said, (KEY,)) == said


SECRETS = {
    "OpenAI": ("key sk-abcdefghijklmnop1234 is wrong", "abcdefgh"),
    "OpenAI project": ("sk-proj-Ab3dEfGh1jKlMnOpQrStUvWx", "Ab3dEf"),
    "Anthropic": ("sk-ant-api03-abcdefghijklmnopqrstuv-AA", "abcdefgh"),
    "letters alone": ("sk-abcdefghijklmnopqrst", "abcdefgh"),
    "Google": ("AIzaSyA1234567890abcdefghij", "SyA123"),
    "Groq": ("gsk_a1B2c3D4e5F6g7H8i9J0", "a1B2"),
    "GitHub": ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7"),
    "GitHub fine-grained": ("github_pat_11ABCDEFG0abcdefghij_x", "11ABCD"),
    "Hugging Face": ("hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345", "AbCdEf"),
    "AWS id": ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN"),
    "AWS secret": ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY1", "wJalr"),
    "Base64 after a plus": ("+jTOuSmC0Tl3oMHzSi+Ayj0DkVZIpiFzTKQNw6xKSAam", "jTOuSm"),
    "JWT": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "hbGci"),
    "hex": (f"key {HEX}", HEX[:8]),
    "one letter": ("f" * 64, "fff"),
    "Base64 for URLs": ("dGhpcyBpcyBh_IHNlY3Jl-dCBrZXkgZm9yIHRlc3Rz", "dGhpc"),
    "license": ("A1B2C-D3E4F-G5H6I-J7K8L-M9N0O-P1Q2R-S3T4U", "A1B2C"),
    "bearer": ("Authorization: Bearer abcdefgh", "abcdefgh"),
    "bearer with a word": ("Authorization: Bearer auth-x1", "auth-x1"),
    "basic": ("Authorization: Basic dXNlcjpwYXNz", "dXNl"),
    "basic, letters alone": ("'Authorization': 'Basic abcdefgh'", "abcdefgh"),
    "named, letters alone": ("api_key=abcdefgh", "abcdefgh"),
    "header": ("x-api-key: abcdefgh", "abcdefgh"),
    "password": ("password: correcthorse", "correct"),
    "password with blanks": ('{"password": "my own, pass"}', "my own"),
    "password of digits": ("password=12345678", "12345678"),
    "secret": ("client_secret=abcdefgh", "abcdefgh"),
    "variable": ("OPENAI_API_KEY=abcdefgh", "abcdefgh"),
    "camel case": ('{"accessToken": "abcdefgh"}', "abcdefgh"),
    "token in a URL": ("GET /v1?token=abcdefgh&x=1", "abcdefgh"),
    "token in JSON": ('{"token": "abcdefgh"}', "abcdefgh"),
    "token in escaped JSON": (r"{\"token\": \"abcdefgh\"}", "abcdefgh"),
    "token": ("Invalid token: a1b2c3d4", "a1b2"),
    "token that is a UUID": (f"token={UUID}", UUID[:8]),
    "words": ("Incorrect API key provided: abc123def456.", "abc123"),
    "user of a URL": ("postgresql://me:letmein@host/db", "letmein"),
    "key in a query": ("https://host/v1?key=abcdefgh12", "abcdefgh"),
}


@pytest.mark.parametrize("name", SECRETS)
def test_text_that_looks_like_a_key_is_removed(name: str) -> None:
    said, secret = SECRETS[name]
    shown = excerpt(said)
    assert "[redacted]" in shown
    assert secret not in shown


@pytest.mark.parametrize(
    "said",
    [
        "Unexpected token: expected ',' or '}'",
        "Unexpected token: 'function' at position 5",
        "Syntax error, unexpected token: END",
        "Invalid token: 50256 is not in the vocabulary",
        "Invalid max_tokens: 4096 is more than max_completion_tokens: 2048",
        "Tool mcp__filesystem__read_multiple_files_recursively is not known",
        "Tool mcp__GitHub2__createPullRequestReviewCommentForRepository failed",
        "AbstractSingletonProxyFactoryBeanManagerInterface is not a schema",
        "Model Meta-Llama-3-1-405B-Instruct-Turbo-FP8-longcontext-128k is not found",
        "Model claude-3-5-sonnet-20241022-extended-thinking-preview is not found",
        "Unknown field skip_special_tokens_between_words",
        "Unknown field key_value_store_of_the_session",
        "keyboard_interrupt_handling is off",
        "No such file: /home/user/projects/remit/src/remit/adapters/models/http.py",
        "No such file: src/remit/adapters/models/of/Provider2/and/version3/http.py",
        f"Request id: {UUID}",
        f"Request req_{UUID} failed",
        f"Image python@sha256:{HEX} is not here",
        f"Not at commit {HEX[:40]}",
        "The Basic plan does not include this model",
        "Basic usage is free; the Bearer token is missing",
        'WWW-Authenticate: Bearer realm="api"',
        "Invalid API key: please check your account",
        "api_key: required, x-api-key: missing, password=None",
        "Pass it as `api_key=...` to the provider",
        (
            "See https://platform.openai.com/docs/guides/error-codes/api-errors#python-library-error-types"
        ),
        "the secret of the token is the password",
        "tokens: 128000, token count: 12",
    ],
)
def test_ordinary_text_stays(said: str) -> None:
    assert excerpt(said) == said


def test_the_name_of_a_value_stays() -> None:
    assert excerpt("Header x-api-key: abc123def456, sent") == "Header x-api-key: [redacted], sent"
    assert excerpt("Authorization: Bearer abc123def456") == "Authorization: Bearer [redacted]"


@pytest.mark.parametrize(
    "piece", ["a", "a1-", "Ab1/", '"token": "', "\\", "key=", "x.", "://:", "token: ", "eyJa"]
)
def test_a_long_text_takes_no_long_time(piece: str) -> None:
    began = process_time()
    assert len(excerpt(piece * 1_000_000, (KEY, "another-one"))) <= 200
    assert process_time() - began < 5


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:8000/v1", "http://h:8000/v1"),
        ("http://user:pa@ss@h/v1/@x", "http://[redacted]@h/v1/@x"),
        ("http://token@h/v1", "http://[redacted]@h/v1"),
        (
            "https://h/v1?api-key=abc&v=1&flag=",
            "https://h/v1?api-key=[redacted]&v=[redacted]&flag=[redacted]",
        ),
        ("https://h/v1?abcdef", "https://h/v1?[redacted]"),
        ("https://h/v1?key=a=b#c?d=e", "https://h/v1?key=[redacted]"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_user_info_and_values_of_its_query(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_the_values_of_a_query_are_secrets_as_sent_and_decoded() -> None:
    assert url_secrets("https://h/v1?api-key=a%2Fbcdefgh&x=") == ("a%2Fbcdefgh", "a/bcdefgh")
    assert url_secrets("https://h/v1") == ()
