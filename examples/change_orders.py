"""New orders for a sub-agent that is at work: they reach its next request, once, and a receipt says when."""

import asyncio
import tempfile

from remit import Remit
from remit.testing import Answer, Asked, scripted_model


class Writer:
    """A model that is busy with its first answer until somebody lets it go on."""

    def __init__(self) -> None:
        self.busy, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, asked: Asked) -> Answer:
        """Look around, then write in the language that the newest orders name."""
        if asked.turn == 0:
            self.busy.set()
            await self.go_on.wait()
            return [("LS", {"path": "."})]
        heard = [text for text in ("Write it in German.", "Mention the license.") if text in asked.text]
        return f"Written. What I heard meanwhile: {' '.join(heard)}"


async def main() -> None:
    """Hand out work without waiting, change it, and read the receipts."""
    writer = Writer()
    with tempfile.TemporaryDirectory() as folder:
        async with scripted_model(writer), Remit.open(folder, f"sqlite:///{folder}/remit.db") as remit:
            receipt = await remit.task(objective="Write the release notes in English.", wait=False)
            task_id = receipt["data"]["task_id"]
            await writer.busy.wait()

            await remit.update_task(task_id=task_id, instructions="Write it in German.")
            sent = await remit.send_message(task_id=task_id, message="Mention the license.")
            print(f"the message goes {sent['delivery']}")
            before = await receipts(remit, task_id)
            writer.go_on.set()

            found = await remit.task_output(task_id=task_id, wait_seconds=60)
            print(found["data"]["result"])
            after = await receipts(remit, task_id)
    assert before == [("instructions", "queued", None), ("message", "queued", None)], before
    assert after == [("instructions", "delivered", 2), ("message", "delivered", 2)], after
    assert found["data"]["result"].endswith("Write it in German. Mention the license."), found


async def receipts(remit: Remit, task_id: str) -> list[tuple[str, str, int | None]]:
    """What was changed, whether the agent knows, and since which of its turns."""
    updates = (await remit.list_updates(task_id=task_id))["updates"]
    for update in updates:
        print(f"  {update['type']:<13} {update['status']:<10} turn {update.get('turn') or '-'}: {update['content']}")
    return [(update["type"], update["status"], update.get("turn")) for update in updates]


if __name__ == "__main__":
    asyncio.run(main())
