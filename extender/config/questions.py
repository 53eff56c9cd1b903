"""The settings of people's questions: a part of `extender.config.settings.Settings`."""

from pydantic import Field
from pydantic_settings import BaseSettings


class QuestionSettings(BaseSettings):
    """How much people's questions (what-if, capacity, plan, explanations) may cost."""

    question_workers: int = Field(
        default=2,
        ge=0,
        le=64,
        description="Questions answered at once, each in a process of its own with a low CPU priority. One caller has "
        "at most all but one of them. Two: the second one is for somebody else. 0: no processes, no time limit inside "
        "a replay; only where no scheduler calls.",
    )
    question_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Time for one question, without waiting. Where this and `question_wait_seconds` do not fit into "
        "`answer_seconds`, after which the connection is closed, both are shortened.",
    )
    max_waiting_questions: int = Field(
        default=8,
        ge=0,
        description="Questions that wait for a worker; more are refused with status 429. Below "
        "`max_questions_at_once`, so that reading nodes goes on.",
    )
    question_wait_seconds: float = Field(
        default=30.0, gt=0, description="How long a question waits for a worker before it is answered with status 503."
    )
    max_question_bytes: int = Field(
        default=256 << 20,
        ge=32 << 20,
        description="Memory of one worker beyond the nodes that all of them share. Two workers with so much stay "
        "inside of the container's 1.5 GiB.",
    )
