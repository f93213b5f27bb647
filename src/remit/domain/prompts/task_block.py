"""The block with the current state of a task, which ends every request to its agent."""

from collections.abc import Mapping, Sequence

from remit.domain.llm.messages import inside_block
from remit.domain.prompts.claims import (
    claim_again,
    in_force,
    next_claim,
    outstanding,
)
from remit.domain.prompts.environment import Allowance
from remit.domain.prompts.headings import HEADINGS, in_one_line, without_headings
from remit.domain.prompts.terms import (
    SHORT,
    criterion_line,
    criterion_text,
    handed_by_others,
    handed_over,
    has_long_criteria,
    output_outlines,
    output_schemas,
)
from remit.domain.task.task import Criterion, Resource, Task
from remit.domain.task.titles import current_title
from remit.domain.text.counting import plural
from remit.domain.text.optional_lines import labeled, listed
from remit.domain.text.truncation import beginning, beginning_marked

_FINISH_NOW = "This is your last turn with tools: finish now."
_NEARLY_USED_UP = "This may be your last turn: finish now."
_OR_FAILS = " If the task is not finished after it, it fails."

REPORT_NOW = "report in one message now."
"""Instructions for a last turn, in which no tool can be called."""

WOKEN = "You can also end your turn now: you are called again when a subtask ends."
"""What an agent with unfinished subtasks may do instead of finishing."""

NOT_KEPT = " The message with which you do so is not part of the result."
"""What happens to that message, unless the agent completes an earlier answer."""

_NO_EARLIER_MESSAGE = " No earlier message of yours is part of the result."

BEGINNING = 200
"""The number of characters of each criterion that the task block repeats if all are long."""

MOST_TITLED, TITLED = 30, 60
"""Up to how many subtasks the task block shows titles, and how many characters of each."""

NO_TITLES: Mapping[str, str] = {}


def task_block(
    task: Task,
    subtasks: Mapping[str, str],
    guides: Mapping[str, str],
    left: str = "",
    *,
    titles: Mapping[str, str] = NO_TITLES,
    messages: Sequence[str] = (),
    replaces_terms: bool = False,
    must_end: bool = False,
    is_last: bool = False,
) -> str:
    """Return the block with the current state of the task and what it has left.

    It ends every request, so that everything before it can be cached. `messages` are the user
    messages of the request: criteria that one of them contains in full are cut here. With
    `replaces_terms`, the agent has read earlier terms. With `must_end`, there may be no turn after
    the next one.
    """
    lines = _title_line(task)
    if not is_last:
        lines += _brief(task, guides, messages, replaces_terms=replaces_terms)
    steps = [_step_line(task, index, subtasks) for index in range(len(task.steps))]
    lines += listed("Steps", steps)
    loose = [_subtask_line(child_id, subtasks, titles) for child_id in _without_step(task)]
    lines += listed("Subtasks", loose)
    lines += labeled("Left", left)
    lines += [f"To finish: {REPORT_NOW if is_last else _how_to_finish(task, must_end=must_end)}"]
    if not is_last and not must_end and _is_woken(task):
        lines.append(WOKEN if task.answer is not None else f"{WOKEN}{NOT_KEPT}")
    content = inside_block("\n".join(lines))
    return f"<Task id={task.id}>\n{content}\n</Task>\nStay on this task."


def _title_line(task: Task) -> list[str]:
    """Return a line with the title, unless the instructions repeat it."""
    title = in_one_line(current_title(task))
    if _shows_instructions(task) and title == task.instructions:
        return []
    return [f"Title: {title}"]


def _step_line(task: Task, index: int, subtasks: Mapping[str, str]) -> str:
    step = task.steps[index]
    line = f"{_box(step.done)} {index}. {in_one_line(step.title)}"
    if not step.task_id:
        return line
    return f"{line} (subtask {step.task_id}: {subtasks.get(step.task_id, 'unknown')})"


def _box(is_checked: bool) -> str:
    return "[x]" if is_checked else "[ ]"


def _subtask_line(child_id: str, subtasks: Mapping[str, str], titles: Mapping[str, str]) -> str:
    line = f"- subtask {child_id}: {subtasks.get(child_id, 'unknown')}"
    title = titles.get(child_id)
    if title is None:
        return line
    return f"{line} ({beginning(in_one_line(title), TITLED)})"


def loose_subtasks(task: Task) -> list[str]:
    """Return the subtasks without a step; if they are too many to be titled, an empty list."""
    loose = _without_step(task)
    return loose if len(loose) <= MOST_TITLED else []


def _without_step(task: Task) -> list[str]:
    """Return the ids of the subtasks that no step links to."""
    linked = {step.task_id for step in task.steps}
    return [child.id for child in task.children if child.id not in linked]


def _brief(
    task: Task, guides: Mapping[str, str], messages: Sequence[str], *, replaces_terms: bool
) -> list[str]:
    """Return the subject and the limits of the task; a last report does not repeat them."""
    lines: list[str] = []
    if is_described(task):
        lines.append(f"Description: {_shortened(task.description)}")
    lines += _terms(task, messages, replaces_terms=replaces_terms)
    lines += listed("Resources", [*map(_resource_line, task.resources)])
    titles = [in_one_line(f"- {guide}: {title}") for guide, title in guides.items()]
    return [*lines, *listed("Troubleshooting guides (read one with get_guide)", titles)]


def is_described(task: Task) -> bool:
    """Return True if the task has a description that differs from its instructions and title."""
    described = task.description.strip()
    return bool(described) and task.description not in (task.instructions, task.title)


def _resource_line(resource: Resource) -> str:
    return in_one_line(f"- {resource.label or resource.type}: {resource.value}")


def what_is_left(task: Task, left: Allowance, last_turn: Allowance) -> str:
    """Return what the task has left, with a notice if the next turn is the last one.

    A task that was only reminded of open steps does not fail: its answer stands.
    """
    if not left.ends_after(last_turn):
        return str(left)
    notice = _FINISH_NOW if left.turns <= 1 else _NEARLY_USED_UP
    answer_stands = task.answer is not None and not task.output_asks
    if not answer_stands:
        notice += _OR_FAILS
    return f"{left}\n{notice}"


def _how_to_finish(task: Task, *, must_end: bool) -> str:
    """Explain how to end the task; open steps stay on record if there is no turn for them."""
    if outstanding(task):
        return f"call {claim_again(task)}."
    required, _ = output_outlines(task)
    if required:
        return f"{next_claim(task)}."
    if task.completion == "explicit":
        return "call complete_task. A message alone does not complete this task."
    if task.answer is not None:
        return _how_to_finish_an_answer(task)
    if task.is_kept_open and must_end:
        return 'call complete_task with {"summary": <the whole result>}.'
    first = ""
    if task.open_steps and not must_end:
        first = f"do or mark {_named_steps(task.open_steps)}, then "
    if task.refused_summary:
        return f"{first}{next_claim(task)}."
    return f"{first}end with one message that holds the whole result.{_not_kept(task)}"


def _not_kept(task: Task) -> str:
    """Say that the whole result must be in the next message, if an earlier one is not kept."""
    return _NO_EARLIER_MESSAGE if task.drops_message else ""


def _is_woken(task: Task) -> bool:
    """Return whether the end of a subtask starts the next run of the task."""
    return any(child.wait == "wake" and child.settled is None for child in task.children)


def _named_steps(open_steps: Sequence[int]) -> str:
    """Return the numbers of open steps as a phrase: `step 2`, or `steps 0, 2`."""
    return f"{plural(len(open_steps), 'step')} {', '.join(map(str, open_steps))}"


def _how_to_finish_an_answer(task: Task) -> str:
    """Explain how to end a task whose agent has answered and was reminded of open steps."""
    if task.is_kept_open:
        return (
            "do or mark the open steps, then end with one last message. Your last answer above is"
            " kept."
        )
    return (
        "end with one last message. Your last answer above is kept, so say only what is new or"
        " corrected."
    )


def _terms(task: Task, messages: Sequence[str], *, replaces_terms: bool) -> list[str]:
    """Return the current instructions, criteria and outputs."""
    lines = _terms_heading(task, replaces_terms=replaces_terms)
    if _shows_instructions(task):
        lines.append(f"Instructions: {_current_instructions(task, messages)}")
    return [*lines, *_criteria_lines(task, messages), *_output_lines(task)]


def _terms_heading(task: Task, *, replaces_terms: bool) -> list[str]:
    """Return a line with the version of the terms, if they changed or are more than a text."""
    if task.terms_version == 1 and not task.acceptance and not task.outputs:
        return []
    heading = f"Current terms (version {task.terms_version})"
    if replaces_terms:
        heading += ". They replace all earlier instructions, criteria and outputs"
    return [f"{heading}:"]


def _shows_instructions(task: Task) -> bool:
    """Return True if the task block contains the instructions in addition to the title."""
    return task.instructions != task.title or task.instructions_version > 1


def _current_instructions(task: Task, messages: Sequence[str]) -> str:
    """Return the current instructions, or where to find them if they are long."""
    if len(task.instructions) <= SHORT:
        return task.instructions
    told = f"{HEADINGS['instructions']}\n{without_headings(task.instructions)}"
    if any(told in message for message in messages[1:]):
        return (
            f"see the newest message headed {HEADINGS['instructions']}. They replace all earlier"
            " ones."
        )
    if messages and messages[0].startswith(task.instructions):
        return "see your first message."
    return task.instructions


def _criteria_lines(task: Task, messages: Sequence[str]) -> list[str]:
    """Return the criteria; long ones are cut if a message contains all of them in full."""
    heading = "Acceptance criteria, which the result must meet"
    place = _place_of_criteria(task, messages)
    if place:
        heading = f"{heading} (in full in {place})"
    lines = [_criterion_line(task, item, is_cut=bool(place)) for item in in_force(task)]
    return [*listed(heading, lines), *_waived(task)]


def _place_of_criteria(task: Task, messages: Sequence[str]) -> str:
    """Name the newest message that contains long criteria in full.

    Return an empty text if there is none, or if the criteria are short.
    """
    if not has_long_criteria(task):
        return ""
    heading = HEADINGS["acceptance"]
    updates = [message for message in messages[1:] if heading in message]
    if _has_criteria(updates, task):
        return f"the newest message headed {heading}"
    if _has_criteria(messages[:1], task):
        return "your first message"
    return ""


def _has_criteria(messages: Sequence[str], task: Task) -> bool:
    """Return True if one of the messages contains all criteria in full."""
    criteria = [criterion_text(task, item) for item in in_force(task)]
    return any(all(map(message.__contains__, criteria)) for message in messages)


def _criterion_line(task: Task, item: Criterion, *, is_cut: bool) -> str:
    text = criterion_text(task, item)
    if is_cut:
        text = beginning_marked(text, BEGINNING, " […]")
    return criterion_line(item, text)


def _waived(task: Task) -> list[str]:
    """Return a line with the criteria that were waived, if there are any."""
    waived = [item for item in task.acceptance if item.status == "waived"]
    named = ", ".join(f"{item.id} ({_short_quote(item.text)})" for item in waived)
    return labeled("Waived (no longer required, even if an earlier message asks for it)", named)


def _short_quote(text: str) -> str:
    """Quote the beginning of a text in one line."""
    line = in_one_line(text)
    return f'"{beginning_marked(line, TITLED, "…")}"'


def _output_lines(task: Task) -> list[str]:
    """Return the required and optional outputs, their schemas, and those handed over."""
    how = ", handed over with complete_task"
    required, optional = output_outlines(task)
    label = "Optional outputs" if required else f"Optional outputs{how}"
    return [
        *labeled(f"Required outputs{how}", required),
        *labeled(label, optional),
        *output_schemas(task),
        *handed_over(task),
        *handed_by_others(task),
    ]


def _shortened(text: str) -> str:
    return beginning_marked(text, SHORT, " […]")
