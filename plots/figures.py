"""Writes every figure of a result folder as PNG and SVG."""

import importlib
from pathlib import Path

from plots import theme
from plots.data import StoredExperiment, load
from plots.figure import Figure, element, rendered, replace

__all__ = ["all_figures", "svg_of", "write_all"]


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
