"""Recognizes that an endpoint refuses an API key: by type and code, or by words."""

import re

_NOUN = r"""
    (?: (?:x\s)? api \s? (?:secret\s)? (?:key|token|secret)
      | (?:access|secret|subscription|virtual|license) \s key
      | (?:access|security|auth|authentication|authorization|bearer|oauth2?|iam|session|api|client
          |proxy\sserver|service) \s token
      | (?:auth|authorization|api \s key|bearer) \s header
      | (?:auth \s)? credentials? | authentication | jwt | iam \s certification | login
    ) \b"""
"""The names that endpoints give to a key."""
_BAD = r"""
    (?: \b (?: invalid | incorrect | wrong | bad | badly | missing | unknown | unrecognized
      | illegal | malformed | expired | revoked | blocked | disabled | deactivated | deleted
      | suspended | inactive | leaked | compromised | required | rejected
      | fail(?:s|ed|ure)? | errors? )
      | (?:\b not|n't) \s (?:be \s)? (?:valid|found|recognized|exist|active|correct|accepted
          |provided?|supplied|supply|sent|send|set|present|include|included|verified|validated)
    ) \b"""
"""The words of endpoints for a key that they do not accept."""
_WRONG_KEY = re.compile(rf"""(?x)
    (?: {_BAD} | \b no \b )
      (?: ['"`:\s]+ (?:or|and|an?|the|your|any|such|valid|missing|invalid|provided
        |authentication) \b
      ){{0,3}} ['"`:\s]+ {_NOUN} (?! \s (?:permission|scope|quota|limit|usage))
    | \b {_NOUN} ['"`]? (?: \s? [:=] \s? \S+ | \s \S* [*\d'"`] \S* )?
      (?: [\s,/]+ (?:header|value|format|signature|verification|has|have|been|is|are|was|were
        |does|do|did|could|ca|seems?|appears?|to|be|you|we|provided|supplied|included|used
        |in|the|this|request|reported|as|already|either|or) \b ){{0,7}} [\s,/]* {_BAD}
    | \b invalid \s token \b (?= \s* (?:[.,;!)]|$) )
    | \b token \s (?:has|is|was|have|seems|appears|to|be|\s)*
      (?:expired|revoked|invalid|not \s valid) \b
      (?= \s* (?:[.,;!)]|$) )
    | \b expired \s token \b
    | (?:\b (?:failed|unable|not) | n't) \s (?:to \s)? authenticate \b
    | \b unauthenticated \b | \b not \s authenticated \b
    | \b (?:must|please) \s (?:provide|pass|supply|send|specify|include|enter)
      \s (?:an?|your|the) \s (?:valid \s)? api \s key
    | unregistered \s callers | unrecognized \s client
    | (?:身份验证|认证|鉴权|令牌|密钥|api \s? key|token) \s* [已是为]?
      (?:失败|无效|错误|过期|非法|不正确|不存在)
    """)
"""The words, after `_split_words`: a credential, and near it what is wrong with it."""
_KIND = re.compile(r"\bauthentication\b|\bunauthenticated\b|\bauth error\b|\binvalid auth\b")
"""Types and codes of errors that always mean the key."""
_CREDENTIAL = re.compile(r"key|token|auth|credential|^none$")
_OTHER = re.compile(
    r"content (?:filter|policy|management|safety)|moderation|invalid prompt|output blocked"
    r"|\bsafety\b|\bschema\b|\bfunction\b|\btool call\b|\bprompt\b|could not fetch|https?://\S+: "
)
"""Refusals that may quote the request, which can itself contain these words."""
_PASSING = re.compile(r"timed? ?out|unavailable|temporar|try again|retry|overloaded")
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])|[_-]")
NOT_ABOUT_KEYS = frozenset({402, 404, 408, 413, 429})


def refuses_key(status: int, kind: str, message: str, param: str) -> bool:
    """Return True if a refusal says that the key is missing, wrong, or no longer valid.

    The wording takes precedence over the status: endpoints send 400, 403 and even 200 or 500. An
    error that names another parameter, or content that it does not allow, may quote such words.
    """
    if status == 401:
        return True
    if status in NOT_ABOUT_KEYS:
        return False
    kind, message = _split_words(kind), _split_words(message)
    if _is_about_other(kind, message, param):
        return False
    if status >= 500 and _PASSING.search(message):
        return False
    if _KIND.search(kind) or _WRONG_KEY.search(kind) or _WRONG_KEY.search(message):
        return True
    return status != 403 and _says_unauthorized(kind, message)


def _is_about_other(kind: str, message: str, param: str) -> bool:
    """Return True if a refusal names another parameter, or may quote a request."""
    if param and not _CREDENTIAL.search(_split_words(param)):
        return True
    return any(map(_OTHER.search, (kind, message)))


def _says_unauthorized(kind: str, message: str) -> bool:
    return "unauthorized" in kind or message.strip(" .!") == "unauthorized"


def _split_words(text: str) -> str:
    """Return a text in lower case, with names such as `InvalidApiKey` and `invalid_api_key` as
    words.
    """
    return _HUMPS.sub(" ", text.replace("\u2019", "'")).lower()
