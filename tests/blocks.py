"""The blocks of code in documents, and how each says that it is tested: in its info string, ```sh test=run."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from invoke.parser import Parser
from markdown_it import MarkdownIt

import tasks
from harness.cli.verb import Verb
from harness.files import ROOT
from harness.options.declared import FLAG
from impls import catalog

# run, and slow (the same, by hand or at night); write into a file, apply a change to one; parse; a message of the code.
WAYS = {"python": {"run", "slow", "write"}, "sh": {"run", "slow", "parse"}, "markdown": {"write"}, "diff": {"apply"},
        "text": {"message"}, "json": {"parse"}}  # fmt: skip
_DRAWN = ("{", "mermaid")  # directives of the site, and figures
_INTERPRETER = Path(__file__).parent / "docs" / "interpreter.py"


@dataclass(frozen=True)
class Block:
    """A block of code: where it is, its language, the words behind that, its text."""

    page: str
    line: int
    language: str
    words: dict[str, str] = field(hash=False)
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}"

    @property
    def way(self):
        return self.words.get("test", "")


def blocks_of(path: Path, root: Path = ROOT) -> list[Block]:
    """The blocks of a document, without figures and directives."""
    found = []
    for token in MarkdownIt("commonmark").parse(path.read_text()):
        if token.type == "code_block" or (token.type == "fence" and not token.info.startswith(_DRAWN)):
            language, *words = shlex.split(token.info) or [""]
            known = dict(word.partition("=")[::2] for word in words)
            found.append(Block(path.relative_to(root).as_posix(), token.map[0] + 1, language, known, token.content))
    return found


def commands_in(text: str) -> list[list[str]]:
    """The words of each `./inv` command of a shell text."""
    lines = text.replace("\\\n", " ").splitlines()
    split = [shlex.split(line, comments=True) for line in lines]
    return [words[words.index("./inv") + 1 :] for words in split if "./inv" in words]


def check_command(words: list[str], also: tuple[str, ...] = ()) -> None:
    """Fails unless `./inv` knows the task and its options, and they take the values; mechanisms must be there."""
    words = [word for word in words if word not in {"--help", "--list"}]
    if len(words) < 2:
        assert not words or words[0] in tasks.namespace or words[0].endswith(".*"), f"no task {words[0]}"
        return
    for context in _parser().parse_argv(words):
        task = tasks.namespace[context.name]
        given = context.as_kwargs
        for option in task.options if isinstance(task, Verb) else ():
            value = given.get(option.name)
            if value is None or option.kind == FLAG:
                continue
            read = option.read(value)
            if option.name == "mechanism":
                names = value.split(",") if isinstance(read, str) else read
                assert not set(names) - {*catalog.every(), *also, "NAME"}, f"unknown mechanism in {words}"


@cache
def _parser() -> Parser:
    return Parser(contexts=tasks.namespace.to_contexts())


class Sandbox:
    """A copy of the repository in which the blocks of a page run one after another, as its reader would run them."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self.folder = folder
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        paths = {"RESCALE_VENV": sys.prefix, "PYTHONPATH": str(folder)}
        self._environment = {**os.environ, **paths, **environment}
        self._python = None

    def run(self, block: Block) -> None:
        """Does what a block says; fails with its place and what was printed."""
        if block.way == "write":
            path = self.folder / block.words["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.way == "apply":
            self._shell(block, ["git", "apply", "--unidiff-zero", "--recount", "-"], block.text)
        elif block.language == "sh":
            self._shell(block, ["bash", "-euo", "pipefail", "-c", block.text])
        else:
            self._interpret(block)

    def _shell(self, block: Block, command: list[str], text: str | None = None) -> None:
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"

    def _interpret(self, block: Block) -> None:
        """Runs a block in the page's interpreter, which the first one starts."""
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-u", str(_INTERPRETER)], cwd=self.folder, env=self._environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        self._python.stdin.write(json.dumps([str(block), "\n" * block.line + block.text]) + "\n")
        self._python.stdin.flush()
        answer = self._python.stdout.readline()
        assert answer, f"{block}: the interpreter has ended with {self._python.wait(10)}"
        assert json.loads(answer) is None, f"{block}:\n{json.loads(answer)}"

    def close(self) -> None:
        """Ends the interpreter, with whatever its blocks have left running."""
        if self._python is None:
            return
        with self._python:  # which closes its pipes
            self._python.stdin.close()
            try:
                self._python.wait(60)
            except subprocess.TimeoutExpired:
                self._python.kill()
