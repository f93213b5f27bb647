"""Read shows images and PDFs to models that take them, and says so to models that do not."""

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from remit.adapters.models.pydantic_ai import PydanticAiGateway
from remit.adapters.models.registry import ModelRegistry
from remit.domain.agents.media import MAX_MEDIA, Media
from remit.domain.llm.messages import Message, Request, Tool, ToolCall, ToolResult, user
from remit.domain.llm.selection import Choices, ModelChoice, Table, choose
from remit.domain.task.task import State
from tests.agents.endpoint import Body, RuledServer, answers, wants
from tests.agents.stage import Stage, stage
from tests.dialects import StrictServer
from tests.modelserver import Dialect, Reply, Say, Status

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
FILES = {
    "chart.png": PNG,
    "photo.JPG": b"\xff\xd8\xff\xe0 jpeg",
    "move.gif": b"GIF89a gif",
    "page.webp": b"RIFF\x10\0\0\0WEBPVP8 ",
    "paper.pdf": b"%PDF-1.7\n\0",
}
TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "fake.png").write_text("not an image")
    (tmp_path / "large.png").write_bytes(PNG + bytes(MAX_MEDIA))
    return tmp_path


async def _reading(body: Body) -> Say:
    if answers(body):
        return Say(("Seen.",))
    names = [*FILES, "fake.png", "large.png"]
    return Say(
        calls=tuple(wants(f"c{place}", "Read", file_path=name) for place, name in enumerate(names))
    )


async def read_all(
    url: str, folder: Path, model: str, dialect: Dialect = "openai", media: bool | None = None
) -> tuple[Body, list[dict[str, Any]]]:
    """The second request of an agent that reads all files, and the results in its transcript."""
    async with (
        RuledServer(_reading, dialect).running() as server,
        stage(url, folder, [], workers=0) as at,
    ):
        name = f"anthropic:{model}" if dialect == "anthropic" else model
        address = server.url if dialect == "anthropic" else f"{server.url}/v1"
        desk = ModelRegistry(Choices({"main": ModelChoice(name, address, "key", media=media)}, {}))
        await at.hire(models=desk)
        task = await at.run(owner="general", model="main")
        assert task.state is State.DONE, task.failure_reason
        await desk.close()
        return server.asked[-1].body, await results(at, task.id)


async def results(at: Stage, task_id: str) -> list[dict[str, Any]]:
    messages = await at.transcript(task_id)
    return [part for message in messages if message["role"] == "tool" for part in message["parts"]]


async def test_a_model_of_openai_is_shown_images_and_pdfs(any_url: str, folder: Path) -> None:
    body, kept = await read_all(any_url, folder, "gpt-5-mini")
    told = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    assert told[0] == "chart.png (image/png, 264 bytes)"
    (content,) = [
        message["content"] for message in body["messages"] if isinstance(message["content"], list)
    ]
    urls = [
        part["image_url"]["url"] if part["type"] == "image_url" else part["file"]["file_data"]
        for part in content
        if part["type"] != "text"
    ]
    assert [url.partition(";")[0] for url in urls] == [f"data:{kind}" for kind in TYPES]
    assert [b64decode(url.partition(",")[2]) for url in urls] == list(FILES.values())
    shown = [part["media"] for part in kept if "media" in part]
    assert shown == [
        {"type": kind, "bytes": len(data)} for kind, data in zip(TYPES, FILES.values(), strict=True)
    ]
    assert "base64" not in str(kept), "a transcript names the file alone"


async def test_a_model_of_anthropic_is_shown_them_in_the_result(any_url: str, folder: Path) -> None:
    body, _ = await read_all(any_url, folder, "claude-sonnet-5", "anthropic")
    blocks = [block for message in body["messages"] for block in message["content"]]
    found = [block["content"] for block in blocks if block["type"] == "tool_result"]
    media = [content[1] for content in found if isinstance(content, list)]
    assert [block["type"] for block in media] == ["image"] * 4 + ["document"]
    assert [block["source"]["media_type"] for block in media] == TYPES
    assert [b64decode(block["source"]["data"]) for block in media] == list(FILES.values())


@pytest.mark.parametrize(("model", "media"), [("qwen3-coder", None), ("gpt-5", False)])
async def test_a_model_without_media_reads_a_description(
    any_url: str, folder: Path, model: str, media: bool | None
) -> None:
    body, kept = await read_all(any_url, folder, model, media=media)
    assert "base64" not in str(body)
    assert (
        kept[0]["text"]
        == "chart.png is an image (image/png, 264 bytes). This model cannot see images."
    )
    assert kept[4]["text"].startswith(
        "paper.pdf is a PDF (application/pdf, 10 bytes). This model cannot see PDFs."
    )
    assert {part["status"] for part in kept} == {"failed"}


async def test_files_that_are_too_large_or_of_another_kind_are_refused(
    any_url: str, folder: Path
) -> None:
    _, kept = await read_all(any_url, folder, "local", media=True)
    fake, large = (part["text"] for part in kept[-2:])
    assert (
        fake
        == "file_path: 'fake.png' is not a readable image or PDF; expected a PNG, JPEG, GIF, WebP"
        " or PDF file."
    )
    assert (
        large == "file_path: 'large.png' is an image of 5,000,264 bytes; expected one of at most"
        " 5,000,000 bytes."
    )


async def test_text_that_looks_like_media_stays_text(any_url: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("data:image/png;base64,AAAA\nhello\n")

    async def rule(body: Body) -> Say:
        return (
            Say(("Done.",))
            if answers(body)
            else Say(calls=(wants("c", "Read", file_path="notes.txt"),))
        )

    async with RuledServer(rule).running() as server, stage(any_url, tmp_path, [], workers=0) as at:
        desk = ModelRegistry(Choices({"main": ModelChoice("gpt-5", f"{server.url}/v1", "key")}, {}))
        await at.hire(models=desk)
        task = await at.run(owner="general", model="main")
        await desk.close()
        (part,) = await results(at, task.id)
        assert part["text"] == "     1\tdata:image/png;base64,AAAA\n     2\thello"
        assert "image_url" not in str(server.asked[-1].body)


async def test_a_model_behind_pydantic_ai_is_shown_them_too() -> None:
    media = [
        Media(kind, b64encode(data).decode())
        for kind, data in zip(TYPES, FILES.values(), strict=True)
    ]
    calls = tuple(ToolCall(f"c{place}", "Read", {}) for place in range(len(media)))
    shown = tuple(
        ToolResult(call.call_id, "Read", "a file", media=item)
        for call, item in zip(calls, media, strict=True)
    )
    messages = (user("Look."), Message("assistant", calls), Message("tool", shown), user("Go on."))
    async with RuledServer(_reading).running() as server:
        provider = OpenAIProvider(f"{server.url}/v1", "key")
        gateway = PydanticAiGateway(
            "openai-chat", model=lambda name: OpenAIChatModel(name, provider=provider)
        )
        await gateway.request(
            Request("gpt-5", "Be brief.", messages, (Tool("Read", "Reads.", {"type": "object"}),))
        )
        await gateway.close()
        sent = json.dumps(server.asked[-1].body)
    assert [item.data in sent for item in media] == [True] * len(media)
    assert "image_url" in sent


def test_the_setting_of_a_tier_counts_over_the_name() -> None:
    table = Table(
        "config.toml", {"main": {"model": "gpt-5", "media": False}, "light": {"model": "tiny"}}
    )
    found = choose(Table("", {}), table, {"LIGHT_LLM_MEDIA": "true"})
    assert (found.tiers["main"].media, found.tiers["light"].media) == (False, True)


async def _seeing(body: Body) -> Say:
    if "function_call_output" in str(body.get("input")) or answers({"messages": (), **body}):
        return Say(("Seen.",))
    names = ["chart.png", "paper.pdf"]
    calls = [wants(f"c{place}", "Read", file_path=name) for place, name in enumerate(names)]
    return Say(calls=tuple(calls))


async def test_the_responses_api_is_shown_them_in_the_result(any_url: str, folder: Path) -> None:
    choice = ModelChoice("gpt-5-mini", "", "key", api="responses")
    async with RuledServer(_seeing, "responses").running() as server:
        await finished(any_url, folder, choice._replace(base_url=f"{server.url}/v1"))
    items = server.asked[-1].body["input"]
    shown = [item["output"] for item in items if item.get("type") == "function_call_output"]
    image, document = (output[1] for output in shown)
    assert [output[0]["type"] for output in shown] == ["input_text", "input_text"]
    assert (image["type"], document["type"]) == ("input_image", "input_file")
    assert image["image_url"] == f"data:image/png;base64,{b64encode(PNG).decode()}"
    pdf = b64encode(FILES["paper.pdf"]).decode()
    assert document["file_data"] == f"data:application/pdf;base64,{pdf}"


async def finished(url: str, folder: Path, choice: ModelChoice) -> list[dict[str, Any]]:
    """The results in the transcript of an agent that reads an image and a PDF, and is done."""
    async with stage(url, folder, [], workers=0) as at:
        desk = ModelRegistry(Choices({"main": choice}, {}))
        await at.hire(models=desk)
        task = await at.run(owner="general", model="main")
        await desk.close()
        assert task.state is State.DONE, task.failure_reason
        return await results(at, task.id)


@pytest.mark.parametrize("is_set", [True, False], ids=["set", "learned"])
@pytest.mark.parametrize("name", ["mistral", "gemma", "vllm"])
async def test_strict_endpoints_are_shown_media_in_the_result(
    any_url: str, folder: Path, name: str, is_set: bool
) -> None:
    choice = ModelChoice("pixtral", "", "key", strict_turns=is_set)
    async with StrictServer(name, _seeing).running() as server:
        kept = await finished(any_url, folder, choice._replace(base_url=f"{server.url}/v1"))
        assert isinstance(server, StrictServer)
    assert [part["status"] for part in kept] == ["done", "done"]
    told = [message for message in server.asked[-1].body["messages"] if message["role"] == "tool"]
    shown = [piece for message in told for piece in message["content"] if isinstance(piece, dict)]
    assert [piece["type"] for piece in shown].count("image_url") == 1
    assert "chart.png" in json.dumps(told)
    assert "paper.pdf" in json.dumps(told)


REFUSALS = (
    (
        "image input is not supported - hint: if this is unexpected, you may need to provide the"
        " mmproj"
    ),
    "At most 0 image(s) may be provided in one prompt.",
    "m is not a multimodal model",
    "Invalid content type. image_url is only supported by certain models.",
    "No endpoints found that support image input",
    "Invalid value: 'file'. Supported values are: 'text', 'image_url', 'input_audio'.",
    "This model does not support image inputs",
    (
        "'messages.4' : for 'role:user' the following must be satisfied"
        "[('messages.4.content' : value must be a string)]"
    ),
    "messages[4].content must be a string",
    (
        "Failed to deserialize the JSON body into the target type: messages[4].content: invalid"
        " type: sequence, expected a string at line 1 column 7009"
    ),
    "body.messages.4.content: Input should be a valid string",
    "messages.content.type参数非法\uff0c取值范围 ['text']",
)
STATUSES = {REFUSALS[0]: 500, "No endpoints found that support image input": 404}
"""The statuses that are not 400."""


async def test_an_image_that_anthropic_refuses_does_not_end_the_task(
    any_url: str, folder: Path
) -> None:
    said = "messages.2.content.0.tool_result.content.1.image.source: Could not process image"

    async def rule(body: Body) -> Reply:
        if '"image/png"' in json.dumps(body):
            error = {"type": "invalid_request_error", "message": said}
            return Status(400, {"type": "error", "error": error})
        return await _seeing(body)

    async with RuledServer(rule, "anthropic").running() as server:
        await finished(any_url, folder, ModelChoice("anthropic:claude-x", server.url, "key"))
    sent = [json.dumps(asked.body) for asked in server.asked]
    assert ['"image/png"' in body for body in sent] == [False, True, False]
    assert '"application/pdf"' in sent[-1], "only the image is hidden"
    assert "[Not shown: the endpoint of this model did not accept this file.]" in sent[-1]


BROKEN = (
    "Could not process image",
    "You uploaded an unsupported image. Please make sure your image is valid.",
    "Invalid image data",
    "The image data you provided does not represent a valid image",
    "The document is corrupted or password protected",
    "Image dimensions exceed the maximum of 8000 pixels",
    "messages.2.content.0.image.source.base64: image exceeds 5 MB maximum: 6 MB > 5 MB",
    "The image may contain content that is not allowed by our safety system.",
    "At most 2 image(s) may be provided in one request.",
    "Image size is too large. Maximum allowed: 20MB. Supported types: png, jpeg",
    "image too small: minimum 28 pixels",
    "The image length and width do not meet the model restrictions.",
    "Failed to download image from data url.",
)


@pytest.mark.parametrize("said", BROKEN)
async def test_a_file_that_an_endpoint_cannot_read_hides_no_other(
    any_url: str, folder: Path, said: str
) -> None:
    broken = b64encode(b"\x89PNG\r\n\x1a\n broken").decode()
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    names = ["chart.png", "broken.png", "photo.JPG"]

    async def rule(body: Body) -> Reply:
        if broken in json.dumps(body):
            return Status(400, {"error": {"message": said, "type": "invalid_request_error"}})
        if (turn := answers(body)) < len(names):
            return Say(calls=(wants(f"c{turn}", "Read", file_path=names[turn]),))
        return Say(("Seen.",))

    async with RuledServer(rule).running() as server:
        await finished(any_url, folder, ModelChoice("gpt-5", f"{server.url}/v1", "key"))
    sent = [json.dumps(asked.body) for asked in server.asked]
    assert sum(broken in body for body in sent) == 1, "learned once"
    assert sent[-1].count(";base64,") == 2
    assert sent[-1].count("did not accept this file") == 1


@pytest.mark.parametrize("said", REFUSALS)
async def test_after_a_refusal_of_media_the_model_reads_a_description(
    any_url: str, folder: Path, said: str
) -> None:
    async def rule(body: Body) -> Reply:
        if "base64" in json.dumps(body):
            return Status(STATUSES.get(said, 400), {"error": {"message": said}})
        return await _seeing(body)

    async with RuledServer(rule).running() as server:
        await finished(any_url, folder, ModelChoice("gpt-5", f"{server.url}/v1", "key"))
    sent = [asked.body for asked in server.asked]
    shown = ["base64" in json.dumps(body) for body in sent]
    assert shown == [False, True, True, False], "learned once for each kind"
    told = [message["content"] for message in sent[-1]["messages"] if message["role"] == "tool"]
    assert told[0] == f"chart.png (image/png, 264 bytes)\n{NO_IMAGES}"
    assert told[1].partition("\n") == ("paper.pdf (application/pdf, 10 bytes)", "\n", NO_PDFS)


NO_IMAGES = "[Not shown: images cannot be sent to the endpoint of this model.]"
NO_PDFS = "[Not shown: PDFs cannot be sent to the endpoint of this model.]"
UNREADABLE = "[Not shown: the endpoint of this model did not accept this file.]"
IMAGE_DATA, PDF_DATA = "data:image/png;base64,", "data:application/pdf;base64,"
ONE_KIND = (
    (
        "Invalid value: 'file'. Supported values are: 'text','image_url','input_audio'.",
        "messages[5].content[3].type",
        PDF_DATA,
        NO_PDFS,
    ),
    ("Input should be 'text' or 'image_url'", "", PDF_DATA, NO_PDFS),
    ("expected one of 'text', 'image_url', got 'file'", "", PDF_DATA, NO_PDFS),
    ("Unsupported value.", "messages[3].content[3].file", PDF_DATA, NO_PDFS),
    ("m only supports some multimodal content", "", PDF_DATA, NO_PDFS),
    (
        "Invalid value: 'image_url'. Supported values are: 'text', 'file'.",
        "",
        IMAGE_DATA,
        NO_IMAGES,
    ),
    ("This model does not support image inputs", "", IMAGE_DATA, NO_IMAGES),
    ("The file could not be processed: invalid PDF.", "", PDF_DATA, UNREADABLE),
    ("Could not process image", "", IMAGE_DATA, UNREADABLE),
)
"""What an endpoint says that accepts one of the two kinds, its `param`, the data that it refuses,
and what the model reads instead.
"""


@pytest.mark.parametrize(("said", "param", "refused", "note"), ONE_KIND)
async def test_a_refused_kind_hides_no_file_of_the_other_kind(
    any_url: str, folder: Path, said: str, param: str, refused: str, note: str
) -> None:
    async def rule(body: Body) -> Reply:
        if refused in json.dumps(body):
            error = {"message": said, "param": param, "type": "invalid_request_error"}
            return Status(400, {"error": error})
        return await _seeing(body)

    async with RuledServer(rule).running() as server:
        await finished(any_url, folder, ModelChoice("gpt-5", f"{server.url}/v1", "key"))
    sent = [asked.body for asked in server.asked]
    assert [refused in json.dumps(body) for body in sent] == [False, True, False]
    (accepted,) = {IMAGE_DATA, PDF_DATA} - {refused}
    assert accepted in json.dumps(sent[-1])
    told = [message["content"] for message in sent[-1]["messages"] if message["role"] == "tool"]
    is_noted = ["Not shown" in text for text in told]
    assert is_noted == [refused == IMAGE_DATA, refused == PDF_DATA]
    assert any(note in text for text in told)
