"""Tool calls that a model writes as text instead of making them."""

from remit.app.agent_loop.current_run import CurrentRun
from remit.app.agent_loop.toolset import RunTools
from remit.app.conversations.reminders import knows_how_to_call
from remit.app.conversations.statements import last_answer
from remit.domain.llm.text_calls import Written, written_call


class WrittenCalls:
    """Finds written calls in the answers of a run."""

    def __init__(self, run: CurrentRun, tools: RunTools) -> None:
        self._run, self._tools = run, tools

    def find(self, text: str) -> Written | None:
        """Return the tool call that the model wrote as text; None if the text is an answer."""
        task = self._run.task
        asked = f"{task.instructions}\n{task.description}"
        return written_call(text, self._tools.all_names, asked)

    def unexplained(self) -> Written | None:
        """Return the call written in the last message unless tool use was explained already."""
        conversation = self._run.conversation
        if not conversation.finished or knows_how_to_call(conversation.history):
            return None
        return self.find(last_answer(conversation.history))
