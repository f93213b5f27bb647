"""`output_type`: a Python type as the required output of a delegation.

This module parses the type with pydantic, which is imported when `output_type` is first used.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass, make_dataclass
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from remit.app.subagents.delegation_arguments import TIMEOUT_SECONDS
from remit.domain.outputs.accepted_schemas import LISTS, SCHEMAS, TABLES, schema_problem
from remit.errors import InvalidOutput, InvalidParam, NotFound, invalid

NAME = "output"
"""The name of the required output."""
_DIGITS = r"_*\d[\d_]*"
_DECIMAL = rf"^\s*[-+]?({_DIGITS}\.?[\d_]*|_*\.{_DIGITS})([eE][-+]?{_DIGITS})?\s*$"
"""The pattern of a decimal number as text.

pydantic gives none, or one with look-ahead, which RE2 does not have. It reads underscores, too.
"""


class TypedOutput:
    """A type as a required output: its JSON Schema, and how to read a value."""

    def __init__(self, output_type: Any) -> None:
        from pydantic import PydanticUserError, TypeAdapter
        from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(_portable(output_type))
            schema = self._adapter.json_schema(schema_generator=_schema_generator())
        except (
            PydanticUserError,
            PydanticSchemaGenerationError,
            PydanticInvalidForJsonSchema,
        ) as error:
            problem = f"is {_name(output_type)}, which has no JSON Schema: {error.args[0]}"
            raise invalid(
                "output_type", problem, "a pydantic model, a dataclass or a TypedDict"
            ) from error
        self._type = output_type
        self.schema = _plain(schema)
        if (refused := schema_problem(self.schema, "output_type")) is not None:
            raise InvalidParam([refused])

    def __reduce__(self) -> tuple[type["TypedOutput"], tuple[Any]]:
        """Pickle the type alone: what pydantic made of it cannot always be pickled."""
        return TypedOutput, (self._type,)

    def request(self, operation: str, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the operation and its fields, with the typed output added to the required
        outputs.
        """
        if operation == "Task":  # takes no outputs; task does the same work
            work = {"timeout_seconds": TIMEOUT_SECONDS["Task"], **fields}
            return "task", self._with_output(work, "outputs")
        if operation == "task":
            return operation, self._with_output(fields, "outputs")
        if operation == "task_parallel":
            return operation, {**fields, "tasks": self._items(fields.get("tasks"))}
        return operation, dict(fields)

    def read(self, outputs: Mapping[str, Any]) -> Any:
        """Return the typed output of a result."""
        from pydantic import ValidationError

        if NAME not in outputs:
            raise NotFound(
                f"The result has no output named {NAME!r}.",
                hint="Pass output_type to the call that creates the task, too.",
            )
        try:
            return self._adapter.validate_json(json.dumps(outputs[NAME]))
        except ValidationError as error:
            faults = [f"{_place(each['loc'])}: {each['msg']}" for each in error.errors()]
            raise InvalidOutput(
                f"The agent's output is not a valid {_name(self._type)}. {'; '.join(faults)}.",
                hint="result.outputs has it as JSON.",
            ) from error

    def _items(self, tasks: Any) -> Any:
        """Return the tasks of a parallel delegation, each with the typed output."""
        if not isinstance(tasks, list | tuple):
            return tasks
        items = cast("list[Any]", tasks)
        return [self._item(item, f"tasks[{index}].outputs") for index, item in enumerate(items)]

    def _item(self, item: Any, field: str) -> Any:
        if isinstance(item, str):
            return self._with_output({"objective": item}, field)
        if isinstance(item, Mapping):
            return self._with_output(cast("Any", item), field)
        return item

    def _with_output(self, fields: Mapping[str, Any], field: str) -> dict[str, Any]:
        """Add the typed output to the outputs of a task; refuse another one of its name."""
        outputs: list[Any] = list(fields.get("outputs") or ())
        if NAME in map(_output_name, outputs):
            raise invalid(
                field,
                f"has {NAME!r}, which is the name of the typed output",
                "another name, or no output_type",
            )
        typed = {"name": NAME, "kind": "json", "schema": self.schema}
        return {**fields, "outputs": [*outputs, typed]}


def reader_of(typed: TypedOutput | None) -> Callable[[Mapping[str, Any]], Any] | None:
    """Return the function that reads a typed output, if there is one."""
    return None if typed is None else typed.read


def _output_name(output: Any) -> Any:
    """Return the name of an output, which is given as an object or by its name alone."""
    if isinstance(output, Mapping):
        return cast("Any", output).get("name")
    return output


@cache
def _schema_generator() -> type[Any]:
    """Return pydantic's generator of schemas, extended by what a text must match."""
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        def decimal_schema(self, schema: Any) -> Any:
            number, text = super().decimal_schema(schema)["anyOf"]
            if schema.get("allow_inf_nan"):
                return {"anyOf": [number, {"type": text["type"]}]}
            return {"anyOf": [number, {"type": "string", "pattern": _DECIMAL}]}

        def url_schema(self, schema: Any) -> Any:
            url = super().url_schema(schema)
            if not (schemes := schema.get("allowed_schemes")):
                return url
            return {**url, "pattern": f"^\\s*({'|'.join(map(_any_case, schemes))}):"}

    return Generator


def _any_case(word: str) -> str:
    """Return the pattern of a word in lower and upper case; not all readers of patterns have
    flags.
    """
    letters = (f"[{each}{each.upper()}]" if each.isalpha() else re.escape(each) for each in word)
    return "".join(letters)


def _plain(schema: Any) -> Any:
    """Return a schema without titles, which only repeat names, as far as remit checks schemas."""
    if not isinstance(schema, dict):
        return schema
    words = cast("dict[str, Any]", schema).items()
    return {word: _PARTS.get(word, _unchanged)(part) for word, part in words if word != "title"}


def _plain_list(schemas: list[Any]) -> list[Any]:
    return list(map(_plain, schemas))


def _plain_table(schemas: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(each) for name, each in schemas.items()}


def _unchanged(part: Any) -> Any:
    return part


_PARTS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(SCHEMAS, _plain),
    **dict.fromkeys(LISTS, _plain_list),
    **dict.fromkeys(TABLES, _plain_table),
}
"""How the value of a word of a schema becomes plain; all others stay."""


def _portable(output_type: Any) -> Any:
    """Convert a type for pydantic: before Python 3.12 it accepts only TypedDicts of
    typing_extensions.
    """
    if sys.version_info >= (3, 12):
        return output_type
    return _convert(output_type, ())


def _convert(hint: Any, around: tuple[Any, ...]) -> Any:
    """Convert a type and its parts; `around` has the types that contain it, which stay."""
    if hint in around:
        return hint
    if is_typeddict(hint) and type(hint).__module__ == "typing":
        return _convert_typed_dict(hint, (*around, hint))
    if is_dataclass(hint) and isinstance(hint, type):
        return _convert_dataclass(hint, (*around, hint))
    return _convert_generic(hint, around)


def _convert_generic(hint: Any, around: tuple[Any, ...]) -> Any:
    """Convert the arguments of a union, an annotated type or a container."""
    origin, arguments = get_origin(hint), get_args(hint)
    if not arguments or origin in (Literal, Callable):
        return hint
    if origin is Annotated:
        first, *rest = arguments
        parts = (_convert(first, around), *rest)
    else:
        parts = tuple(_convert(each, around) for each in arguments)
    if parts == arguments:
        return hint
    generic: Any = Union if origin is UnionType else origin
    return generic[parts]


def _convert_typed_dict(kind: Any, around: tuple[Any, ...]) -> Any:
    import typing_extensions

    required: frozenset[str] = kind.__required_keys__
    marks: Any = typing_extensions
    made = {
        name: (marks.Required if name in required else marks.NotRequired)[
            _convert(_without_mark(hint), around)
        ]
        for name, hint in get_type_hints(kind, include_extras=True).items()
    }
    return marks.TypedDict(kind.__name__, made)


def _without_mark(hint: Any) -> Any:
    """Return the type of a field of a TypedDict that is marked as required or not."""
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _convert_dataclass(kind: type[Any], around: tuple[Any, ...]) -> Any:
    """Convert the fields of a dataclass; the values are instances of the dataclass itself."""
    from pydantic import AfterValidator

    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError:  # pydantic may know more, or says what is wrong
        return kind
    changed = [
        (field.name, hint, copy(field))
        for field in fields(kind)
        if (hint := _convert(hints[field.name], around)) is not hints[field.name]
    ]
    if not changed:
        return kind
    is_frozen: bool = cast("Any", kind).__dataclass_params__.frozen
    made = make_dataclass(
        kind.__name__,
        changed,
        bases=(kind,),
        namespace={"__slots__": ()},
        eq=False,
        repr=False,
        frozen=is_frozen,
    )

    def restore(value: Any) -> Any:
        object.__setattr__(value, "__class__", kind)
        return value

    return Annotated[made, AfterValidator(restore)]


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join([NAME, *map(str, location)])
