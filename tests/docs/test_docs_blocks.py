"""Every block of code and every command in docs/ does what it says; pages run from top to bottom, as readers do."""

import ast
import json
import re
import subprocess
from functools import cache

import pytest
from blocks import WAYS, Sandbox, blocks_of, check_command, commands_in

from harness.cli.graph import modules
from harness.docs.pages import documents
from harness.files import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
RUN = {block.page for block in BLOCKS if block.way == "run"}
SLOW = {block.page for block in BLOCKS if block.way == "slow"}
WITH_KAFKA = {block.page for block in BLOCKS if "BROKER" in block.text}
TEXTS = sorted({*map(str, documents(ROOT)), "README.md"} - {"CHANGELOG.md"})  # which names what there was
LITERAL_LEAST = 20  # characters of a text that are not put in, or any message would be one of the code
BY_DEFAULT = {"docs/guides/engineer.md", *RUN - WITH_KAFKA}  # Spark and Kafka on one page only, for the time it takes


def own_names(page: str) -> tuple[str, ...]:
    """Mechanisms that a page makes itself."""
    texts = [block.text for block in BLOCKS if block.page == page and block.way == "write"]
    return tuple(re.findall(r'^MECHANISMS = {"([\w-]+)"', "\n".join(texts), re.M))


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in PAGES])
def test_every_block_says_how_it_is_tested(page):
    for block in blocks_of(ROOT / page):
        assert block.way in WAYS.get(block.language, ()), f"{block}: a {block.language} block with test={block.way!r}"
        assert (block.way == "write") == ("file" in block.words), f"{block}: test=write needs file=PATH"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language in {"sh", "python", "json"}], ids=str)
def test_a_block_is_well_formed(block):
    if block.language == "python":
        ast.parse(block.text, str(block))
    elif block.language == "json":
        json.loads(block.text)
    else:
        subprocess.run(["bash", "-n", "-c", block.text], check=True)
        for words in commands_in(block.text):
            check_command(words, own_names(block.page))


@cache
def sentences() -> tuple[re.Pattern, ...]:
    """The texts that the code can say, with anything in the place of what it puts in."""
    inv = re.findall(r'say_and_exit "([^"]*)"', (ROOT / "inv").read_text())
    found = {(text,) for text in inv}
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            found.add(tuple(p.value if isinstance(p, ast.Constant) and isinstance(p.value, str) else "" for p in parts))
    long = {parts for parts in found if sum(map(len, parts)) >= LITERAL_LEAST}
    return tuple(re.compile("".join(re.escape(part) or ".*" for part in parts)) for parts in long)


def is_said(message: str) -> bool:
    """Whether the code can say a message, in which ... stands for what is left out."""
    whole = f"{message}." if message.endswith("…") else message
    return any(said.fullmatch(whole) for said in sentences())


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.way == "message"], ids=str)
def test_a_message_is_one_of_the_code(block):
    assert is_said(block.text.strip())


def test_a_message_that_nobody_says_is_seen():
    assert is_said("The checkpoint here is in use by another driver (process 7): stop it first.")
    assert not is_said("The checkpoint here is in use by another program (process 7): stop it first.")
    assert not is_said("The checkpoint here is in use by another driver (process 7): stop it first, or wait.")


@pytest.mark.parametrize("name", TEXTS)
def test_commands_in_the_text_of_documents_are_known(name):
    text = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(), flags=re.M | re.S)
    for span in re.findall(r"`(\./inv [^`]+)`", text):
        for words in commands_in(" ".join(span.split())):
            check_command(words, own_names(name))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("page", "ways"),
    [pytest.param(page, {"run"}, id=page, marks=pytest.mark.lengthy if page in BY_DEFAULT else pytest.mark.slow)
     for page in sorted(RUN)]
    + [pytest.param(page, {"run", "slow"}, id=f"{page} in full", marks=pytest.mark.slow) for page in sorted(SLOW)],
)  # fmt: skip
def test_a_page_runs_from_top_to_bottom(page, ways, tmp_path, request):
    broker = {"BROKER": request.getfixturevalue("kafka")} if page in WITH_KAFKA else {}
    sandbox = Sandbox(tmp_path / "rescale-bench", broker)
    try:
        for block in blocks_of(ROOT / page):
            if block.way in {*ways, "write", "apply"}:
                sandbox.run(block)
    finally:
        sandbox.close()


def test_a_block_that_fails_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python test=run\nx = 1\n```\n\n```python test=run\nassert x == 2, x\n```\n")
    first, second = blocks_of(page, tmp_path)
    sandbox = Sandbox(tmp_path / "copy", {})
    try:
        sandbox.run(first)
        with pytest.raises(AssertionError, match=r"page.md:7(.|\n)*AssertionError: 1"):
            sandbox.run(second)
    finally:
        sandbox.close()
