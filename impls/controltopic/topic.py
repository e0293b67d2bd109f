"""A Kafka topic with commands, as a user names it, and its connections."""

from dataclasses import dataclass
from typing import Any

from impls.errors import UsageError

__all__ = ["ControlTopic", "answers_of", "quiet"]


@dataclass(frozen=True)
class ControlTopic:
    """A control topic that a query obeys.

    Attributes:
        bootstrap: broker addresses of the topic.
        topic: its name; it is made with one partition if it is not there, and so is the topic of answers.
        query: the query's name, by which commands address it.
        inputs: broker addresses of the query's input, where they are others.
    """

    bootstrap: str
    topic: str
    query: str
    inputs: str = ""

    def __post_init__(self) -> None:
        if not self.query:
            raise UsageError("A query on a control topic needs a name, by which commands address it.")
        if not self.topic or not self.bootstrap:
            raise UsageError("A control topic needs a name and the addresses of its broker.")

    @property
    def answers(self) -> str:
        """The topic of the answers to commands that name none."""
        return answers_of(self.topic)


def answers_of(topic: str) -> str:
    """Returns the topic of the answers to a control topic's commands that name none."""
    return f"{topic}-answers"


def quiet(bootstrap: str, **more: Any) -> dict[str, Any]:
    """Returns settings of a client whose errors come back from its calls alone."""
    return {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda _: None, **more}
