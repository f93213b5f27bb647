"""Change the instructions of a running sub-agent.

Its next model request contains each update once, and a receipt shows when.
"""

import asyncio
import tempfile

from remit import Answer, Asked, Remit, scripted_model


class Writer:
    """A model that holds its first answer until `go_on` is set."""

    def __init__(self) -> None:
        self.busy, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, asked: Asked) -> Answer:
        """List the files, then report the updates that were received."""
        if asked.turn == 0:
            self.busy.set()
            await self.go_on.wait()
            return [("LS", {"path": "."})]
        received = [
            text for text in ("Write it in German.", "Mention the license.") if text in asked.text
        ]
        return f"Written. Updates received: {' '.join(received)}"


async def main() -> None:
    """Delegate a task without waiting, change it, and read the receipts."""
    writer = Writer()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            scripted_model(writer),
            Remit.open(folder, f"sqlite:///{folder}/remit.db") as remit,
        ):
            receipt = await remit.task(objective="Write the release notes in English.", wait=False)
            task_id = receipt.task_id
            await writer.busy.wait()

            await remit.update_task(task_id=task_id, instructions="Write it in German.")
            sent = await remit.send_message(task_id=task_id, message="Mention the license.")
            print(f"Delivery of the message: {sent.delivery}")
            before = await receipts(remit, task_id)
            writer.go_on.set()

            found = await remit.task_output(task_id=task_id, wait_seconds=60)
            print(found.text)
            after = await receipts(remit, task_id)
    assert before == [("instructions", "queued", None), ("message", "queued", None)], before
    assert after == [("instructions", "delivered", 2), ("message", "delivered", 2)], after
    assert found.text.endswith("Write it in German. Mention the license."), found


async def receipts(remit: Remit, task_id: str) -> list[tuple[str, str, int | None]]:
    """The type of each update, whether it was delivered, and in which turn."""
    updates = (await remit.list_updates(task_id=task_id)).updates
    for update in updates:
        print(
            f"  {update.type:<13} {update.status:<10} turn {update.turn or '-'}: {update.content}"
        )
    return [(update.type, update.status, update.turn) for update in updates]


if __name__ == "__main__":
    asyncio.run(main())
