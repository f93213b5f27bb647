"""Functions of yours as tools: granted by name, recorded before and after, and shown to the model by their types and docstrings."""

import asyncio
import tempfile

from remit import Remit
from remit.testing import Answer, Asked, scripted_model

STOCK = {"apples": 3, "pears": 0}


def stock(item: str) -> int:
    """How many of an item are in the warehouse."""
    return STOCK[item]


async def order(item: str, count: int) -> str:
    """Order more of an item."""
    STOCK[item] += count
    return f"{count} {item} are on their way."


def keeper(asked: Asked) -> Answer:
    """A model that looks first, orders what is missing, and reports."""
    match asked.turn:
        case 0:
            return [("stock", {"item": "apples"}), ("stock", {"item": "pears"}), ("stock", {"item": "plums"})]
        case 1:
            return [("order", {"item": "pears", "count": 12})]
        case _:
            return " / ".join(asked.results)


async def main() -> None:
    """Grant both tools to one sub-agent, and none to another."""
    with tempfile.TemporaryDirectory() as folder:
        async with scripted_model(keeper), Remit.open(folder, f"sqlite:///{folder}/remit.db", tools=[stock, order]) as remit:
            granted = await remit.task(objective="Keep the warehouse full", tools={"allow": ["stock", "order"]})
            print(granted["text"])
            print(f"tools used: {granted['data']['tool_summary']}")
            assert granted["data"]["result"] == "3 / 0 / stock failed: KeyError: 'plums' / 12 pears are on their way."

            refused = await remit.task(objective="Keep the warehouse full")
            print(refused["text"])
            assert "'order' is not a tool that this task may use" in refused["data"]["result"]
    assert STOCK == {"apples": 3, "pears": 12}, STOCK


if __name__ == "__main__":
    asyncio.run(main())
