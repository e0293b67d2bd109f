"""Writes every figure of a result folder as PNG and SVG."""

import importlib
import io
import os
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from plots import theme
from plots.data import Experiment, load
from plots.figure import Figure

__all__ = ["all_figures", "svg_of", "write_all"]

_PNG_DPI = 150
_FONTS = b"'DejaVu Sans', Verdana, Helvetica, sans-serif"


def all_figures(*, sweep: bool = False) -> list[Figure]:
    """Returns the FIGURE of each module of this folder that has one, in the order of the report; those of a sweep."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    modules = [importlib.import_module(f"plots.{name}") for name in names if name != "figures"]
    found = [module.FIGURE for module in modules if isinstance(getattr(module, "FIGURE", None), Figure)]
    kept = [figure for figure in found if figure.of_sweep == sweep or not figure.in_report]
    return sorted(kept, key=lambda figure: (figure.order, figure.name))


def _render(figure: Figure, experiment: Experiment, formats: tuple[str, ...]) -> dict[str, bytes]:
    """Returns the figure in each format; nothing if it has nothing to show."""
    with theme.style():
        drawn = figure.draw(experiment)
        if drawn is None:
            return {}
        theme.finish(drawn, experiment)
        out = {kind: _bytes(drawn, kind) for kind in formats}
        plt.close(drawn)
        return out


def _bytes(drawn: Any, kind: str) -> bytes:
    buffer = io.BytesIO()
    # Without a date, the same result gives the same file.
    metadata = {"Date": None} if kind == "svg" else {}
    drawn.savefig(buffer, format=kind, dpi=_PNG_DPI, metadata=metadata)
    content = buffer.getvalue()
    return content.replace(b"'DejaVu Sans'", _FONTS) if kind == "svg" else content


def svg_of(figure: Figure, experiment: Experiment, *, drawn: bool = False) -> str | None:
    """Returns the figure's SVG element in the light colours, without XML prologue; None if it has nothing to show.

    With `drawn`, what `write_all` has just written is read and not drawn again.
    """
    written = experiment.folder / "figures" / f"{figure.name}.svg"
    if drawn and written.exists():
        return _element(written.read_text(encoding="utf-8"))
    rendered = _render(figure, experiment, ("svg",))
    return _element(rendered["svg"].decode()) if rendered else None


def _element(text: str) -> str:
    text = text[text.index("<svg") :]
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


def write_all(result_folder: Path) -> list[Path]:
    """Writes figures/<name>.svg and .png for every figure that has something to show; returns their paths."""
    experiment = load(result_folder)
    folder = result_folder / "figures"
    folder.mkdir(exist_ok=True)
    paths: list[Path] = []
    for figure in all_figures(sweep=experiment.is_sweep):
        for kind, content in _render(figure, experiment, ("svg", "png")).items():
            paths.append(folder / f"{figure.name}.{kind}")
            _replace(paths[-1], content)
    return paths


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
