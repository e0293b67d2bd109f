"""A figure: what its module declares, and all figures of a result folder as PNG and SVG.

Drawn figures become files: SVG that is the same for the same figure, PNG for where SVG is not shown.
"""

import importlib
import io
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from plots import theme
from plots.data import StoredExperiment, load

_PNG_DPI = 150
_FONTS = b"'DejaVu Sans', Verdana, Helvetica, sans-serif"


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind of figure; the `FIGURE` or the `FIGURES` of a module of `plots` are found automatically.

    Attributes:
        name: file name without ending.
        title: heading in the report.
        caption: one sentence that says what the figure shows.
        order: place in the report, lower first.
        draw: draws the comparable runs inside `theme.style()`; returns a matplotlib figure, None if nothing is to show.
        in_report: shown in report.html, which has tables of its own.
        of_sweep: shows a sweep; the others show an experiment whose runs of a mechanism are alike.
    """

    name: str
    title: str
    caption: str
    order: int
    draw: Callable[[StoredExperiment], Any]
    in_report: bool = True
    of_sweep: bool = False


def rendered(drawn: Any, formats: Collection[str]) -> dict[str, bytes]:
    """Returns a figure in each format (svg, png) and closes it; the style it was drawn in is still in force."""
    out = {kind: _bytes(drawn, kind) for kind in formats}
    plt.close(drawn)
    return out


def save(drawn: Any, identity: str, path: Path) -> bytes:
    """Writes a figure as SVG and PNG, what was measured below it, and returns the SVG; its style is still in force."""
    drawn.supxlabel(identity, x=0.01, ha="left", fontsize=6.8, color=theme.LIGHT["muted"])
    contents = rendered(drawn, ("svg", "png"))
    for kind, content in contents.items():
        replace(path.with_suffix(f".{kind}"), content)
    return contents["svg"]


def where_measured(environment: Mapping[str, Any]) -> str:
    """Returns the commit of a result, marked if files were changed, and the number of cores, in words."""
    changed = " (changed)" if environment["dirty"] else ""
    return f"commit {environment['commit'][:12]}{changed}, {environment['cores']} cores"


def _bytes(drawn: Any, kind: str) -> bytes:
    buffer = io.BytesIO()
    # Without a date, the same result gives the same file.
    metadata = {"Date": None} if kind == "svg" else {}
    drawn.savefig(buffer, format=kind, dpi=_PNG_DPI, metadata=metadata)
    content = buffer.getvalue()
    return content.replace(b"'DejaVu Sans'", _FONTS) if kind == "svg" else content


def element(svg: bytes) -> str:
    """Returns the SVG element of a file, without XML prologue and metadata."""
    text = svg.decode()
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)


def replace(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name and renames it, so that a reader sees the old or the new one whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def all_figures(*, sweep: bool = False) -> list[Figure]:
    """Returns the FIGURE or FIGURES of each module of this folder, in the order of the report; those of a sweep."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    modules = [importlib.import_module(f"plots.{name}") for name in names if name != "figures"]
    declared = [(*getattr(module, "FIGURES", ()), getattr(module, "FIGURE", None)) for module in modules]
    found = [figure for several in declared for figure in several if isinstance(figure, Figure)]
    kept = [figure for figure in found if figure.of_sweep == sweep or not figure.in_report]
    return sorted(kept, key=lambda figure: (figure.order, figure.name))


def _render(figure: Figure, experiment: StoredExperiment, formats: tuple[str, ...]) -> dict[str, bytes]:
    """Returns the figure in each format; nothing if it has nothing to show."""
    with theme.style():
        drawn = figure.draw(experiment)
        if drawn is None:
            return {}
        theme.finish(drawn, experiment)
        return rendered(drawn, formats)


def svg_of(figure: Figure, experiment: StoredExperiment, *, drawn: bool = False) -> str | None:
    """Returns the figure's SVG element in the light colours, without XML prologue; None if it has nothing to show.

    With `drawn`, what `write_all` has just written is read and not drawn again.
    """
    written = experiment.folder / "figures" / f"{figure.name}.svg"
    if drawn and written.exists():
        return element(written.read_bytes())
    found = _render(figure, experiment, ("svg",))
    return element(found["svg"]) if found else None


def write_all(result_folder: Path) -> list[Path]:
    """Writes figures/<name>.svg and .png for every figure that has something to show; returns their paths."""
    experiment = load(result_folder)
    folder = result_folder / "figures"
    folder.mkdir(exist_ok=True)
    paths: list[Path] = []
    for figure in all_figures(sweep=experiment.is_sweep):
        for kind, content in _render(figure, experiment, ("svg", "png")).items():
            paths.append(folder / f"{figure.name}.{kind}")
            replace(paths[-1], content)
    return paths
