"""What an agent was told last about its tools and its open work."""

from remit.app.conversations.stored_message import History, StoredMessage
from remit.domain.prompts import agent_prompts, update_messages


def knows_how_to_call(history: History) -> bool:
    """True if the agent was told how to call tools and has not called one since."""
    for item in reversed(history):
        if item.calls:
            return False
        if _is_prompt(item) and agent_prompts.says_how_to_call(item.message.text):
            return True
    return False


def standing_reminder(history: History) -> StoredMessage | None:
    """Return the reminder of open work, if the agent got no other update after it."""
    for item in reversed(history):
        if _is_prompt(item) and update_messages.tells_news(item.message.text):
            is_reminder = update_messages.only_reminds(item.message.text)
            return item if is_reminder else None
    return None


def _is_prompt(item: StoredMessage) -> bool:
    """True for a message to the agent."""
    return item.message.role == "user"
