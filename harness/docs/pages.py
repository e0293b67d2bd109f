"""The pages of the site in Markdown: documents of the repository, and references made of the code.

Documents link to each other as they lie in the repository, so that they can be read there. Here each gets its place in
the site, links follow, and a link to a file that is no document becomes the file's name.
"""

import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from invoke.collection import Collection

from harness.cli.mechanisms import purpose_of
from harness.cli.verb import Verb
from harness.docs.sequence import draw, parse
from harness.files import write_text
from harness.options.declared import FLAG, Option, defaults_of
from impls import autoscale, catalog, placement
from impls.errors import UsageError
from impls.protocol import named

_PACKAGE = "impls.mechanisms."


def _kind_of(name: str) -> type:
    return type(catalog.baseline(name) if name in catalog.baselines() else catalog.make(name))


def _folder_of(name: str) -> str:
    return _kind_of(name).__module__.removeprefix(_PACKAGE).split(".")[0]


def folders() -> dict[str, list[str]]:
    """Returns the names of mechanisms and baselines by the folder of `impls/mechanisms` that they are in."""
    found: dict[str, list[str]] = {}
    for name in catalog.every():
        found.setdefault(_folder_of(name), []).append(name)
    return found


def _about(kind: type) -> dict[str, str]:
    """Returns what the section "Attributes" of a class and of those that it extends says of each name."""
    sentences: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        text = inspect.cleandoc(one.__doc__ or "").partition("Attributes:\n")[2].split("\n\n")[0]
        for name, words in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.M):
            sentences[name] = " ".join(words.split())
    return sentences


def _shown(value: Any) -> str:
    """Returns a default as a reader takes it in: large powers of two in MiB, an empty text as none."""
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value >> 20} MiB"
    return "none" if value == "" else f"{value}"


def mechanism_table(root: Path) -> str:
    """Returns all mechanisms and baselines as a table in Markdown, each linked with its page, as from `docs/`."""
    lines = ["| mechanism | what it does | options and their defaults |", "|---|---|---|"]
    for folder, names in sorted(folders().items(), key=lambda item: (item[1][0] in catalog.baselines(), item[0])):
        page = root / "impls" / "mechanisms" / folder / "README.md"
        link = f"../{page.relative_to(root).as_posix()}"
        for name in names:
            options = [f"`{option}` {_shown(value)}" for option, value in catalog.options(name).items()]
            lines.append(f"| [{name}]({link}) | {purpose_of(_kind_of(name))} | {', '.join(options) or '-'} |")
    return "\n".join(lines) + "\n"


def option_table(folder: str) -> str:
    """Returns the options of a folder's mechanisms as a table in Markdown; empty where there are none."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name in folders()[folder]:
        about = _about(_kind_of(name))
        for option, value in catalog.options(name).items():
            rows.setdefault((option, _shown(value), about.get(option, "")), []).append(name)
    if not rows:
        return ""
    lines = ["| option | default | of | what it is |", "|---|---|---|---|"]
    lines += [
        f"| `{o}` | {v} | {', '.join(f'`{n}`' for n in names)} | {text} |" for (o, v, text), names in rows.items()
    ]
    return "\n".join(lines) + "\n"


def _autoscaling_table() -> str:
    """Returns the autoscaling policies as a table in Markdown."""
    return _table(autoscale.policies())


def _placement_table() -> str:
    """Returns the placement policies as a table in Markdown."""
    return _table(placement.policies())


def _table(policies: Mapping[str, Any]) -> str:
    lines = ["| policy | what it does | options and their defaults |", "|---|---|---|"]
    for name in sorted(policies):
        shown: Iterable[str] = (f"`{option}` {value:g}" for option, value in named.defaults_of(policies[name]).items())
        lines.append(f"| `{name}` | {_purpose(policies[name])} | {', '.join(shown) or '-'} |")
    return "\n".join(lines) + "\n"


def _purpose(policy: Any) -> str:
    """Returns the first paragraph of the docstring of a policy's module."""
    about = inspect.getdoc(sys.modules[policy.__module__]) or ""
    return " ".join(about.split("\n\n")[0].split())


_PLACES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "examples/README.md": "guides/examples.md",
    "generators/README.md": "load.md",
    "impls/operators/nexmark/README.md": "nexmark.md",
    "impls/spark/CLUSTER.md": "guides/cluster.md",
    "results/README.md": "results/files.md",
}
_PARTS = ("docs", "docker", "examples", "generators", "harness", "impls", "plots", "results/reference")
_IMAGES = {".png", ".svg"}
_FENCE = re.compile(r"^(?P<mark>`{3,})(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=mark)[ ]*$\n?", re.M | re.S)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<to>[^)\s]+)\)")
_GENERATED = re.compile(r"^<!-- generated: (\w+) -->$", re.M)


def documents(root: Path) -> dict[PurePosixPath, PurePosixPath]:
    """Returns the documents of the repository with the page that each becomes, both as relative paths."""
    files = [*root.glob("*.md"), root / "results" / "README.md"]
    files += [path for part in _PARTS for path in (root / part).rglob("*.md")]
    names = sorted(path.relative_to(root).as_posix() for path in files)
    return {PurePosixPath(name): _page_of(name) for name in names if name != "README.md"}


def _page_of(name: str) -> PurePosixPath:
    """Returns the page of a document by its path in the repository; raises UsageError for one that has none."""
    path = PurePosixPath(name)
    if path.parts[0] == "docs":
        return path.relative_to("docs")
    if name in _PLACES:
        return PurePosixPath(_PLACES[name])
    if path.match("impls/mechanisms/*/README.md"):
        return PurePosixPath("mechanisms") / f"{path.parts[2]}.md"
    if path.parts[:2] == ("results", "reference"):
        parts = [part for part in path.with_suffix("").parts[1:] if part != "README"]
        return PurePosixPath("results") / f"{'-'.join(parts)}.md"
    raise UsageError(f"The document {name} has no page: give it a place in harness/docs/pages.py.")


def write_pages(root: Path, folder: Path, generated: Mapping[str, Callable[[], str]]) -> None:
    """Writes the pages, their figures and what configures the generator into an empty folder.

    Args:
        root: the repository.
        folder: where to.
        generated: what makes the text of `<!-- generated: NAME -->`, by name, besides mechanisms and policies.

    Raises:
        UsageError: a document has no page, a link leads nowhere, or a figure or a generated part is not known.
    """
    known: dict[str, Callable[[], str]] = {
        "mechanisms": lambda: mechanism_table(root),
        "autoscaling": _autoscaling_table,
        "placement": _placement_table,
        **generated,
    }
    for name, page in documents(root).items():
        text = _with_options((root / name).read_text(), name)
        text = _GENERATED.sub(lambda match: _made(match[1], known), text)
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, _Page(root, folder, name, page).made_of(text))
    for own in ("conf.py", "_static"):
        source = root / "docs" / own
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / own)


def _made(name: str, known: Mapping[str, Callable[[], str]]) -> str:
    if name not in known:
        raise UsageError(f"There is no generated part {name!r}: use one of {', '.join(known)}.")
    return known[name]()


def _with_options(text: str, name: PurePosixPath) -> str:
    """Puts the options of a mechanism's README, as the catalog knows them, under its heading "Options"."""
    if not name.match("impls/mechanisms/*/README.md") or not (table := option_table(name.parts[2])):
        return text
    heading = "\n## Options\n"
    if heading not in text:
        raise UsageError(f"{name} has no heading Options, although {', '.join(folders()[name.parts[2]])} has some.")
    return text.replace(heading, f"{heading}\n{table}")


class _Page:
    """One document on its way to a page."""

    def __init__(self, root: Path, folder: Path, name: PurePosixPath, page: PurePosixPath):
        self._root, self._folder, self._name, self._page = root, folder, name, page

    def made_of(self, text: str) -> str:
        """Returns the page's text: figures drawn, links as they are in the site."""
        parts, at = [], 0
        for match in _FENCE.finditer(text):
            parts += [self._linked(text[at : match.start()]), self._fence(match)]
            at = match.end()
        return "".join([*parts, self._linked(text[at:])])

    def _fence(self, match: re.Match[str]) -> str:
        if match["info"].split()[:1] != ["mermaid"]:
            return match[0]
        drawn = draw(parse(match["body"]), f"Protocol: {self._page.stem}")
        return f'<figure class="drawn">\n{drawn}\n</figure>\n\n'

    def _linked(self, text: str) -> str:
        return _LINK.sub(self._link, text)

    def _link(self, match: re.Match[str]) -> str:
        target, _, mark = match["to"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = PurePosixPath(os.path.normpath(self._name.parent / target))
        if not (self._root / path).exists():
            raise UsageError(f"{self._name} links to {target}, which is not there.")
        if path.suffix in _IMAGES:
            return f"{match['image']}[{match['text']}]({self._copied(path)})"
        if path.suffix != ".md":
            return match["text"] if path.name in match["text"] else f"{match['text']} (`{path}`)"
        to = os.path.relpath(_page_of(str(path)), self._page.parent)
        return f"[{match['text']}]({to}{'#' if mark else ''}{mark})"

    def _copied(self, path: PurePosixPath) -> str:
        """Copies a figure into the site's sources and returns its place, seen from the page."""
        target = self._folder / "_figures" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._root / path, target)
        return os.path.relpath(target, (self._folder / self._page).parent)


def tasks_of(namespace: Collection) -> dict[str, Any]:
    """Returns the tasks by the name under which users call them, those of a group behind a dot."""
    own = {task.name.replace("_", "-"): task for task in namespace.tasks.values()}
    for group, collection in namespace.collections.items():
        own |= {f"{group}.{task.name.replace('_', '-')}": task for task in collection.tasks.values()}
    return dict(sorted(own.items()))


def command_reference(namespace: Collection) -> str:
    """Returns a section in Markdown for each task: what it does, how it is called, its options in groups."""
    return "\n".join(_section(name, task) for name, task in tasks_of(namespace).items())


def _section(name: str, task: Any) -> str:
    about = inspect.getdoc(task.body) or ""
    options = task.options if isinstance(task, Verb) else ()
    presets = task.presets if isinstance(task, Verb) else {}
    needed = "".join(f" {option.name.upper()}" for option in options if option.required)
    lines = [f"## ./inv {name}", "", "\n\n".join(" ".join(part.split()) for part in about.split("\n\n")), ""]
    lines += [f"`./inv {name}{needed}{' [options]' if options else ''}`", ""]
    for group in dict.fromkeys(option.group for option in options):
        lines += [f"**{group}**", ""] if group else []
        for option in options:
            if option.group == group:
                lines += _definition(option, defaults_of(option, presets))
    return "\n".join(lines)


def _definition(option: Option, defaults: str) -> list[str]:
    """Returns an option as an entry of a definition list."""
    spec = f"{option.flag} {option.metavar}".rstrip()
    said = re.sub(r"([*_<>|])", r"\\\1", f"{option.help}{defaults if option.kind != FLAG else ''}")
    return [f"`{spec}`", f": {said}", ""]
