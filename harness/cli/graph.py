"""The packages of impls and harness, lowest first, and what each imports: read from the code, written for readers."""

import ast
from functools import cache
from pathlib import Path

from harness.files import ROOT
from impls.errors import UsageError

__all__ = ["LAYERS", "TOP", "imports_of", "layer_of", "modules", "with_graph", "write_graph"]

TOP = ("generators", "plots", "impls", "harness", "rescale_bench")
LAYERS = {
    "impls": ("errors", "faults", "protocol", "store", "placement", "operators", "durability", "transfer", "worker",
              "autoscale", "driver", "controltopic", "realtime", "spark", "mechanisms", "catalog", "api", "processor",
              "aggregation", "adoption"),
    "harness": ("files", "guard", "options", "setup", "lab", "measure", "oracle", "experiment", "results", "report",
                "live", "run", "suites", "cli", "docs"),
}  # fmt: skip
_BEGIN, _END = "<!-- package graph: ./inv graph -->\n", "<!-- end of the package graph -->"


@cache
def modules() -> dict[str, Path]:
    """Returns the files of all packages by the module's dotted name."""
    found = {}
    for top in TOP:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports_of(module: str) -> frozenset[str]:
    """Returns what a module imports anywhere, in functions and for types too: our modules, and others' packages."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    ours = {name if name in modules() else name.rpartition(".")[0] for name in names if name.split(".")[0] in TOP}
    return frozenset(ours | {name.split(".")[0] for name in names if name.split(".")[0] not in TOP}) - {module}


def layer_of(module: str) -> str:
    """Returns the row of the graph that a module belongs to: `impls.worker`, `harness.files`, `plots`."""
    top, _, rest = module.partition(".")
    return f"{top}.{rest.split('.')[0]}" if top in LAYERS and rest else top


def _rows() -> dict[str, list[str]]:
    """The layers, lowest first, with the layers that each imports in the same order."""
    order = [name for top in TOP for name in ([f"{top}.{layer}" for layer in LAYERS[top]] if top in LAYERS else [top])]
    found: dict[str, set[str]] = {name: set() for name in order}
    for module in modules():
        if layer_of(module) in found:
            imported = {layer_of(name) for name in imports_of(module) if name.split(".")[0] in TOP}
            found[layer_of(module)] |= imported - {layer_of(module)}
    return {name: [other for other in (*order, "impls") if other in found[name]] for name in order}


def _graph_text() -> str:
    """Returns the table of packages, lowest first, as Markdown; each imports rows above its own only."""
    lines = ["| package | imports of its own part | imports of other parts |", "|---|---|---|"]
    for name, imported in _rows().items():
        top = name.partition(".")[0]
        own = [f"`{other.partition('.')[2]}`" for other in imported if other.startswith(f"{top}.")]
        others = [f"`{other}`" for other in imported if not other.startswith(f"{top}.")]
        lines.append(f"| `{name}` | {', '.join(own) or '-'} | {', '.join(others) or '-'} |")
    return "\n".join(lines) + "\n"


def with_graph(text: str) -> str:
    """Returns a document with the table between its two marks written anew; raises UsageError without the marks."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise UsageError(f"docs/packages.md lacks {_BEGIN.strip()!r} or {_END!r}: put the line back.")
    return f"{before}{begin}\n{_graph_text()}\n{end}{after}"


def write_graph() -> Path:
    """Writes the table into docs/packages.md and returns its path."""
    path = ROOT / "docs" / "packages.md"
    path.write_text(with_graph(path.read_text()))
    return path
