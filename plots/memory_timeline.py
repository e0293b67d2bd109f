"""Memory of each role over time, one panel for each mechanism."""

from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure

__all__ = ["FIGURE"]

_MIB = 1024**2
# role in memory.jsonl -> (label, colour)
_ROLES = {
    "jvm": ("Spark JVM", "blue"),
    "broker": ("broker", "orange"),
    "worker": ("workers, sum", "green"),
    "worker_max": ("largest worker", "forest"),
    "driver": ("driver", "pink"),
    "redis": ("Redis", "vermilion"),
    "generator": ("generator", "grey"),
}
_KINDS = {"rss": "-", "anon": (0, (1, 1.5))}


def _panel(axes: Any, run: StoredRun) -> float:
    theme.shade_migrations(axes, run)
    x = run.seconds([row["at_us"] for row in run.memory])
    top = 0.0
    for role, (_, colour) in _ROLES.items():
        for kind, dash in _KINDS.items():
            values = [((row.get("roles") or {}).get(role) or {}).get(kind) for row in run.memory]
            y = np.array([np.nan if v is None else v / _MIB for v in values], dtype=np.float64)
            if np.isfinite(y).any():
                axes.plot(
                    *theme.thin(x, y),
                    color=theme.LIGHT[colour],
                    linestyle=dash,
                    linewidth=1.3 if kind == "rss" else 1.1,
                )
                top = max(top, float(np.nanmax(y)))
    theme.panel_title(axes, run, coloured=False)
    return top


def _draw(experiment: StoredExperiment) -> Any:
    """Draws resident memory by role, and the part of it that is not mapped files."""
    runs = [run for run in experiment.typical() if run.memory]
    if not runs:
        return None
    figure, panels = theme.grid_of(len(runs), height=1.55, sharex=True, sharey=True)
    top = max(_panel(axes, run) for axes, run in zip(panels, runs, strict=True))
    panels[0].set_ylim(0, max(top, 1.0) * 1.08)
    panels[0].yaxis.set_major_locator(theme.few_ticks())
    panels[0].yaxis.set_major_formatter(theme.thousands())
    theme.time_axis(panels, runs)
    figure.supylabel("memory, MiB", fontsize=9)
    present = {role for run in runs for row in run.memory for role in row.get("roles") or {}}
    roles = [value for role, value in _ROLES.items() if role in present]
    theme.legend(
        figure,
        [Line2D([], [], color=theme.LIGHT[colour], linewidth=1.6) for _, colour in roles]
        + [Line2D([], [], color=theme.LIGHT["ink"], linewidth=1.2, linestyle=dash) for dash in _KINDS.values()],
        [label for label, _ in roles] + ["resident", "without mapped files"],
    )
    return figure


FIGURE = Figure(
    name="memory_timeline",
    title="Memory",
    caption=(
        "Resident memory of each role's processes over time; dotted is the part that is not mapped files, "
        "which the operating system cannot simply drop."
    ),
    order=60,
    draw=_draw,
)
