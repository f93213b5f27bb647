"""A pydantic-ai agent that delegates to remit's agents.

It needs `pip install "remit[providers]"`.

The outer model is scripted here. With a real model, the agent is
`Agent("anthropic:claude-sonnet-4-5", toolsets=[DelegationToolset(remit)])`. The sub-agents use the
configured model, or the offline model if there is none.
"""

import asyncio
import tempfile
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from remit import DelegationToolset, Remit

HERE = Path(__file__).resolve().parents[1] / "src"


def lead(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model that delegates two tasks at once and summarizes the results."""
    results = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if not results:
        print(f"The model is offered: {', '.join(tool.name for tool in info.function_tools)}")
        works = [
            "Where is the class `DelegationToolset`?",
            "Where is the function `scripted_model`?",
        ]
        return ModelResponse([ToolCallPart("task_parallel", {"tasks": works})])
    return ModelResponse([TextPart(f"My sub-agents say:\n{results[0]}")])


async def main() -> None:
    """Run the outer agent."""
    with tempfile.TemporaryDirectory() as folder:
        async with Remit.open(HERE, f"sqlite:///{folder}/remit.db") as remit:
            agent = Agent(FunctionModel(lead), toolsets=[DelegationToolset(remit, agent="explore")])
            result = await agent.run("Find your way around.")
            print("\n".join(result.output.splitlines()[:12]))
            tasks = (await remit.list_history()).tasks
    assert "[1] Task " in result.output, result.output
    assert [(task.owner, task.state) for task in tasks] == [("explore", "done")] * 2, tasks


if __name__ == "__main__":
    asyncio.run(main())
