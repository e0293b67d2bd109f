"""The price of a restart: highest latency over time, of one restart and of one live migration."""

from typing import Any

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure

__all__ = ["FIGURE", "restart_and_live"]

_RESTARTS = ("native-repartition", "native-restart", "runtime-restart", "restart")
_LIVE = ("megaphone-batched", "megaphone-fluid", "meces", "megaphone-all-at-once", "rhino")


def restart_and_live(runs: list[StoredRun]) -> tuple[StoredRun, StoredRun] | None:
    """Returns a run that restarts and one that migrates live, the best known of each; None where one is missing."""
    restart, live = (_first(runs, names) for names in (_RESTARTS, _LIVE))
    return None if restart is None or live is None else (restart, live)


def _first(runs: list[StoredRun], names: tuple[str, ...]) -> StoredRun | None:
    return next((run for name in names for run in runs if run.mechanism == name), None)


def _draw(experiment: StoredExperiment) -> Any:
    """Draws the highest latency of each 250 ms of scheduled time on a log axis, both runs in one panel."""
    pair = restart_and_live([run for run in experiment.typical() if len(run.timeline["at_s"])])
    if pair is None:
        return None
    figure, (axes,) = theme.grid_of(1, height=1.9)
    values = [value for run in pair for value in _line(axes, run)]
    theme.log_ms(axes.yaxis, values)
    theme.time_axis([axes], list(pair))
    axes.set_ylabel("highest latency")
    lines, labels = axes.get_legend_handles_labels()
    shade, shaded = theme.time_marks()
    theme.shade_migrations(axes, pair[1])
    theme.legend(figure, [*lines, *shade], [*labels, "live migration under way", *shaded[1:]])
    return figure


def _line(axes: Any, run: StoredRun) -> list[float]:
    x, most = theme.thin(run.timeline["at_s"], run.timeline["max"])
    axes.plot(x, most, color=theme.mechanism_colour(run.mechanism), linewidth=1.6, label=run.mechanism)
    return [float(value) for value in most]


FIGURE = Figure(
    name="restart_against_live",
    title="A restart against a live migration",
    caption=(
        "Highest latency of the records scheduled within each 250 ms: a query that is stopped and started again for "
        "its migration, and one whose state moves while it runs."
    ),
    order=5,
    draw=_draw,
)
