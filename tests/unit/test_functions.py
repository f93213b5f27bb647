"""Python functions as tools."""

import asyncio

from remit.adapters.tools.functions import Function, FunctionTools, by_name
from remit.domain.agents.tools import ToolCallRequest, ToolOutcome
from remit.ports import ToolHost


def no_host() -> ToolHost:
    raise AssertionError("a function needs no host")


async def called(function: Function, seconds: float) -> ToolOutcome:
    name = function.__name__
    host = FunctionTools(no_host, by_name([function]))
    try:
        return await host.call(
            ToolCallRequest(name, {}, frozenset({name}), seconds, asyncio.Event())
        )
    finally:
        await host.close()


async def test_a_function_that_takes_too_long_is_stopped() -> None:
    async def wait() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return ""

    assert await called(wait, 0.01) == ToolOutcome(
        "wait was stopped after 0.01 seconds.", is_error=True
    )


async def test_a_timeout_raised_by_the_function_is_reported_as_its_own() -> None:
    async def ask() -> str:
        """Ask a server that does not answer."""
        raise TimeoutError("nobody is there")

    assert await called(ask, 60.0) == ToolOutcome(
        "ask failed: TimeoutError: nobody is there", is_error=True
    )
