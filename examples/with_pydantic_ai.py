"""An agent of pydantic-ai that hands work to remit's agents. It needs `pip install "remit[providers]"`.

The outer model is scripted here; `Agent("anthropic:claude-sonnet-4-5", toolsets=[DelegationToolset(remit)])` is all that a real one takes.
The sub-agents run with the model that is set, and without one offline.
"""

import asyncio
import tempfile
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from remit import Remit
from remit.toolset import DelegationToolset

HERE = Path(__file__).resolve().parents[1] / "src"


def boss(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model that has two things looked up at once and sums up."""
    results = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if not results:
        print(f"the model is offered: {', '.join(tool.name for tool in info.function_tools)}")
        works = ["Where is the class `DelegationToolset`?", "Where is the function `scripted_model`?"]
        return ModelResponse([ToolCallPart("task_parallel", {"tasks": works})])
    return ModelResponse([TextPart(f"My sub-agents say:\n{results[0]}")])


async def main() -> None:
    """Run the outer agent."""
    with tempfile.TemporaryDirectory() as folder:
        async with Remit.open(HERE, f"sqlite:///{folder}/remit.db") as remit:
            agent = Agent(FunctionModel(boss), toolsets=[DelegationToolset(remit, agent="explore")])
            result = await agent.run("Find your way around.")
            print("\n".join(result.output.splitlines()[:12]))
            tasks = (await remit.list_history())["tasks"]
    assert "[1] Task " in result.output, result.output
    assert [(task["owner"], task["state"]) for task in tasks] == [("explore", "done")] * 2, tasks


if __name__ == "__main__":
    asyncio.run(main())
