"""Every block of code in docs/ says how it is tested and is well formed; every command and message is the code's."""

import ast
import json
import re
import subprocess
from functools import cache

import pytest
from blocks import WAYS, blocks_of, check_command, commands_in

from harness.cli.development import modules
from harness.docs.pages import documents
from harness.files import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
TEXTS = sorted({*map(str, documents(ROOT)), "README.md"} - {"CHANGELOG.md"})  # which names what there was
LITERAL_LEAST = 20  # characters of a text that are not put in, or any message would be one of the code


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
        for module in re.findall(r"python -m ([\w.]+)", block.text):
            assert module in modules(), f"{block}: no module {module}"


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
