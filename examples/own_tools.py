"""Use your own functions as tools.

They are granted by name. The model sees their types and docstrings, and each call is recorded
before and after.
"""

import asyncio
import tempfile

from remit import Answer, Asked, Remit, scripted_model

STOCK = {"apples": 3, "pears": 0}


def stock(item: str) -> int:
    """Return how many of an item are in stock."""
    return STOCK[item]


async def order(item: str, count: int) -> str:
    """Order more of an item."""
    STOCK[item] += count
    return f"{count} {item} are on their way."


def keeper(asked: Asked) -> Answer:
    """A model that checks the stock, orders missing items, and reports."""
    match asked.turn:
        case 0:
            return [
                ("stock", {"item": "apples"}),
                ("stock", {"item": "pears"}),
                ("stock", {"item": "plums"}),
            ]
        case 1:
            return [("order", {"item": "pears", "count": 12})]
        case _:
            return " / ".join(asked.results)


async def main() -> None:
    """Grant both tools to one sub-agent, and neither to another."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            scripted_model(keeper),
            Remit.open(folder, f"sqlite:///{folder}/remit.db", tools=[stock, order]) as remit,
        ):
            granted = await remit.task(
                objective="Keep the warehouse full", tools={"allow": ["stock", "order"]}
            )
            print(granted.text)
            used = [f"{entry.tool} {entry.count}x" for entry in granted.tool_summary]
            print(f"Tools used: {', '.join(used)}")
            assert (
                granted.text
                == "3 / 0 / stock failed: KeyError: 'plums' / 12 pears are on their way."
            )

            refused = await remit.task(objective="Keep the warehouse full")
            print(refused.text)
            assert "'order' is not a tool that this task may use" in refused.text
    assert STOCK == {"apples": 3, "pears": 12}, STOCK


if __name__ == "__main__":
    asyncio.run(main())
