"""The result of a delegation: `TaskResult`, and the items of delegation streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar, cast, overload

from remit.errors import Conflict, error_for
from remit.results.base import ResultObject, cut
from remit.results.read_only import ReadOnly, read_only
from remit.results.shapes import Created, Progress, ToolCount

T_co = TypeVar("T_co", covariant=True)
ResultStatus = Literal["running", "completed", "failed", "timeout", "cancelled"]


class ErrorInfo(ResultObject):
    """Why a delegation did not complete."""

    code: str
    message: str
    details: Mapping[str, Any] | None = None


class OpenQuestion(ResultObject):
    """A question that a delegated task waits for; answer it with `respond`."""

    interaction_id: str
    task_id: str
    question: str
    options: tuple[str, ...] = ()


class ResultUsage(NamedTuple):
    """What a delegation used."""

    tokens: int
    tool_calls: int
    duration: float
    """How long the agent worked, in seconds."""
    cost: float | None
    """In US dollars; None if unknown."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return self._asdict()


class TaskResult(ReadOnly, Generic[T_co]):  # noqa: PLW1641 - holds mappings, so it has no hash
    """The result of a delegation; `output` is the typed output if `output_type` was given.

    A task that fails is a result as well: look at `status`, or call `raise_for_status()`.
    """

    _envelope: Mapping[str, Any]
    _about: Mapping[str, Any]
    _read: Callable[[Any], T_co] | None

    def __init__(
        self,
        envelope: Mapping[str, Any],
        about: Mapping[str, Any] | None = None,
        read: Callable[[Any], T_co] | None = None,
    ) -> None:
        self.__dict__.update(_envelope=envelope, _about=about or {}, _read=read)

    @property
    def task_id(self) -> str:
        """The id of the task; empty if the delegation was refused."""
        task_id: str = self._data["task_id"] or ""
        return task_id

    @property
    def status(self) -> ResultStatus:
        """The status of the task; a `running` task has no result yet."""
        status: ResultStatus = self._data["status"]
        return status

    @property
    def text(self) -> str:
        """The agent's report, or the reason of a failure."""
        text: str = self._data["result"]
        if text or (error := self.error) is None:
            return text
        return error.message

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The required outputs by name."""
        outputs: Mapping[str, Any] = read_only(self._outputs)
        return outputs

    @property
    def output(self) -> T_co:
        """The output as an instance of `output_type`.

        Raises the error of a task that did not complete, NotFound if the output is missing, and
        InvalidOutput if it is not valid for the type.
        """
        if "_output" not in self.__dict__:
            self.__dict__["_output"] = self._typed_output()
        output: T_co = self.__dict__["_output"]
        return output

    def _typed_output(self) -> T_co:
        if self._read is None:
            raise Conflict(
                "This result has no typed output.",
                hint="Pass output_type to the call that returns it.",
            )
        self.raise_for_status()
        return self._read(self._outputs)

    @property
    def error(self) -> ErrorInfo | None:
        """Why the task did not complete; None if it completed or has not ended."""
        error = self._envelope.get("error")
        return None if error is None else ErrorInfo.from_dict(error)

    @property
    def usage(self) -> ResultUsage:
        """Tokens, tool calls, time and cost."""
        stats = self._envelope["stats"]
        return ResultUsage(
            tokens=stats["tokens"],
            tool_calls=stats["tool_calls"],
            duration=stats["time_ms"] / 1000,
            cost=self._about.get("cost"),
        )

    @property
    def agent(self) -> str | None:
        """The id of the agent that did the work."""
        agent: str | None = self._data["subagent_type"]
        return agent

    @property
    def model_used(self) -> str | None:
        """The tier and the name of the model that answered; None if no model was called."""
        model: str | None = self._data["model_used"]
        return model

    @property
    def tool_summary(self) -> tuple[ToolCount, ...]:
        """How often each tool was called."""
        return tuple(map(ToolCount.from_dict, self._data["tool_summary"]))

    @property
    def cached(self) -> bool:
        """True if the result of an identical earlier task was used."""
        return bool(self._data.get("cached"))

    @property
    def not_cached(self) -> str | None:
        """Why the result was not cached although `cache` was set."""
        reason: str | None = self._data.get("not_cached")
        return reason

    @property
    def notice(self) -> str | None:
        """The tools that were requested but not granted, and why."""
        notice: str | None = self._data.get("notice")
        return notice

    @property
    def questions(self) -> tuple[OpenQuestion, ...]:
        """The open questions to a person that the task waits for."""
        return tuple(map(OpenQuestion.from_dict, self._data.get("questions", ())))

    @property
    def objective(self) -> str | None:
        """The instructions of the task."""
        return self._about.get("objective")

    @property
    def started_at(self) -> datetime | None:
        """When the first run started."""
        return _instant(self._about.get("started_at"))

    @property
    def completed_at(self) -> datetime | None:
        """When the task ended."""
        return _instant(self._about.get("completed_at"))

    def raise_for_status(self) -> Self:
        """Return this result if the task completed; raise its error otherwise."""
        if self.status == "completed":
            return self
        if (error := self.error) is None:
            hint = "Get the result with task_output; wait_seconds waits for it."
            raise Conflict(
                f"Task {self.task_id} has not ended.", hint=hint, details={"task_id": self.task_id}
            )
        raise error_for(error.code, error.message, error.details)

    def to_dict(self) -> dict[str, Any]:
        """The flat JSON form: task_id, objective, agent_type, status, result, error and times."""
        from remit.domain.delegation.result_envelope import flat

        return flat(self._envelope, self._about)

    def envelope(self) -> dict[str, Any]:
        """The nested JSON form: what REST and the MCP tool `Task` return."""
        return deepcopy(dict(self._envelope))

    @property
    def _outputs(self) -> Mapping[str, Any]:
        return self._data.get("outputs") or {}

    @property
    def _data(self) -> Mapping[str, Any]:
        data: Mapping[str, Any] = self._envelope["data"]
        return data

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskResult):
            return NotImplemented
        return bool(self._envelope == other.envelope() and self.to_dict() == other.to_dict())

    def __repr__(self) -> str:
        head = f"TaskResult(task_id={self.task_id!r}, status={self.status!r}"
        return f"{head}, text={cut(self.text)!r})"


class TaskResults(ReadOnly, Generic[T_co]):  # noqa: PLW1641
    """The results of `task_parallel`, in the order of its tasks: a sequence of `TaskResult`."""

    _results: tuple[TaskResult[T_co], ...]

    def __init__(self, results: Iterable[TaskResult[T_co]]) -> None:
        self.__dict__["_results"] = tuple(results)

    @property
    def results(self) -> tuple[TaskResult[T_co], ...]:
        """One result for each task, including failed and refused tasks."""
        return self._results

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[TaskResult[T_co]]:
        return iter(self._results)

    @overload
    def __getitem__(self, index: int) -> TaskResult[T_co]: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[TaskResult[T_co], ...]: ...

    def __getitem__(self, index: int | slice) -> TaskResult[T_co] | tuple[TaskResult[T_co], ...]:
        return self._results[index]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: `results`, each in its nested form."""
        return {"results": [result.envelope() for result in self._results]}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskResults) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        return f"TaskResults({list(self._results)!r})"


class IndexedResult(ReadOnly, Generic[T_co]):  # noqa: PLW1641 - holds mappings, so it has no hash
    """A result of a stream, and the index of its task in the request."""

    _index: int
    _result: TaskResult[T_co]

    def __init__(self, index: int, result: TaskResult[T_co]) -> None:
        self.__dict__.update(_index=index, _result=result)

    @property
    def index(self) -> int:
        """The index of the task in the request."""
        return self._index

    @property
    def result(self) -> TaskResult[T_co]:
        """The result of the task."""
        return self._result

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: `index`, and `result` in its nested form."""
        return {"type": "result", "index": self.index, "result": self.result.envelope()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexedResult):
            return NotImplemented
        same: Any = cast("Any", other)
        return bool(self.index == same.index and self.result == same.result)

    def __repr__(self) -> str:
        return f"IndexedResult(index={self.index}, result={self.result!r})"


class StreamIdle(NamedTuple):
    """There is no progress yet; `seconds` is the time waited so far."""

    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"type": "waiting", "seconds": self.seconds}


class StreamEnd(NamedTuple):
    """The last item of a stream: the plain result of the call."""

    answer: TaskResult[Any] | TaskResults[Any] | Created

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, with the answer in its nested form."""
        answer = self.answer
        nested = answer.envelope() if isinstance(answer, TaskResult) else answer.to_dict()
        return {"type": "end", "answer": nested}


StreamItem = Progress | IndexedResult[Any] | StreamIdle | StreamEnd
"""The items that `stream` yields."""


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
