"""Settings of people's questions; part of `extender.config.settings.Settings`."""

from pydantic import Field
from pydantic_settings import BaseSettings


class QuestionSettings(BaseSettings):
    """Limits on people's questions (what-if, capacity, plan, explanations)."""

    node_metrics: int = Field(
        default=0,
        ge=0,
        le=5000,
        description="How many nodes `GET /metrics/nodes` shows, by name; about 20 series each. 0: off.",
    )
    question_workers: int = Field(
        default=2,
        ge=0,
        le=64,
        description="Questions answered concurrently, each in a process of its own with a low CPU priority. One caller "
        "gets at most all but one of them. 2: the second one is for another caller. 0: no processes and no time limit "
        "within a replay; use this only where no scheduler calls.",
    )
    question_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Time for one question, without waiting. If this and `question_wait_seconds` together exceed "
        "`answer_seconds`, after which the connection is closed, both are shortened.",
    )
    max_waiting_questions: int = Field(
        default=8,
        ge=0,
        description="Questions waiting for a worker. More are refused with status 429. Keep it below "
        "`max_questions_at_once`, so that nodes can still be read.",
    )
    question_wait_seconds: float = Field(
        default=30.0, gt=0, description="A question that waits longer for a worker is refused with status 503."
    )
    max_question_bytes: int = Field(
        default=256 << 20,
        ge=32 << 20,
        description="Memory of one worker, in addition to the node data that all share. Two such workers stay "
        "within the container's 1.5 GiB.",
    )
