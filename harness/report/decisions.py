"""The decisions of an autoscaling policy, as the report lists them."""

from dataclasses import dataclass

from plots.data import StoredExperiment

__all__ = ["DecisionLine", "decisions"]


@dataclass(frozen=True)
class DecisionLine:
    """A rescale that a policy decided.

    Attributes:
        run: mechanism and round.
        at: seconds since the load's begin.
        change: workers before and after.
        reason: the policy's sentence.
    """

    run: str
    at: str
    change: str
    reason: str


def decisions(experiment: StoredExperiment) -> tuple[int, list[DecisionLine]]:
    """Returns how many decisions were made in all runs, and the lines of those that rescaled."""
    made = [
        (run, event)
        for run in experiment.ordered()
        for event in run.events
        if event["kind"] == "autoscale" and "reason" in event
    ]
    return len(made), [
        DecisionLine(
            run.label,
            f"{float(run.seconds(event['at_us'])):.1f}",
            f"{event['workers']} to {event['wanted']}",
            str(event["reason"]),
        )
        for run, event in made
        if event["wanted"] is not None
    ]
