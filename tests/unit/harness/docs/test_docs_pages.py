"""The site's pages as Markdown: links follow documents to their places, and nothing is copied by hand."""

import re

import pytest
from blocks import ROOT

import tasks
from harness.docs.pages import (
    command_reference,
    documents,
    folders,
    mechanism_table,
    option_table,
    tasks_of,
    write_pages,
)
from harness.options.declared import FLAG
from impls import catalog
from impls.errors import UsageError


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    write_pages(ROOT, folder, {"commands": lambda: command_reference(tasks.namespace)})
    return folder


@pytest.fixture
def repository(tmp_path):
    """repository({path: text}) makes a small one and writes its pages; returns their folder."""

    def make(files, **generated):
        for name, text in {"docs/conf.py": "", "docs/_static/site.css": "", **files}.items():
            (tmp_path / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "repo" / name).write_text(text)
        (tmp_path / "pages").mkdir()
        write_pages(tmp_path / "repo", tmp_path / "pages", generated)
        return tmp_path / "pages"

    return make


def test_every_document_has_a_page_of_its_own():
    found = documents(ROOT)
    assert len(set(found.values())) == len(found) > 25


def test_a_document_without_a_place_ends_the_build(repository):
    with pytest.raises(UsageError, match=r"impls/new/README.md has no page: give it a place"):
        repository({"impls/new/README.md": "", "results/README.md": ""})


def test_links_lead_where_documents_have_gone(repository):
    pages = repository({
        "docs/guides/one.md": "[a](../../ARCHITECTURE.md#words) [b](../two.md) [c](#here) [d](https://x.y/z.md)\n",
        "docs/two.md": "[code](../impls/a.py), [impls/a.py](../impls/a.py)\n\n```sh\n[x](nowhere.md)\n```\n",
        "ARCHITECTURE.md": "![f](results/reference/f.svg) [m](impls/mechanisms/none/README.md)\n",
        "impls/a.py": "",
        "impls/mechanisms/none/README.md": "[up](../../../docs/two.md)\n",
        "results/README.md": "",
        "results/reference/f.svg": "<svg/>",
        "results/reference/README.md": "",
        "results/reference/clusters/README.md": "[r](../README.md)\n",
    })  # fmt: skip
    assert (pages / "guides/one.md").read_text() == (
        "[a](../architecture.md#words) [b](../two.md) [c](#here) [d](https://x.y/z.md)\n"
    )
    assert (pages / "two.md").read_text() == "code (`impls/a.py`), impls/a.py\n\n```sh\n[x](nowhere.md)\n```\n"
    assert (pages / "architecture.md").read_text() == "![f](_figures/results/reference/f.svg) [m](mechanisms/none.md)\n"
    assert (pages / "_figures/results/reference/f.svg").read_text() == "<svg/>"
    assert (pages / "results/reference-clusters.md").read_text() == "[r](reference.md)\n"
    assert (pages / "mechanisms/none.md").read_text() == "[up](../two.md)\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[x](gone.md)", "docs/a.md links to gone.md, which is not there"),
        ("<!-- generated: nothing -->", "no generated part 'nothing'"),
        ("```mermaid\npie\n```\n", "begins with sequenceDiagram"),
    ],
)
def test_what_is_broken_ends_the_build(repository, text, says):
    with pytest.raises(UsageError, match=says):
        repository({"docs/a.md": text, "results/README.md": ""})


def test_the_table_has_every_mechanism_with_its_options():
    table = mechanism_table(ROOT)
    assert sorted(re.findall(r"^\| \[([\w-]+)\]", table, re.M)) == sorted(catalog.every())
    assert "`bins_per_pair` 4, `gap_epochs` 0, `bytes_per_pair` 524288, `small_bytes` 8192" in table
    assert set(folders()) == {p.parent.name for p in (ROOT / "impls/mechanisms").glob("*/README.md")}


@pytest.mark.parametrize("folder", sorted(folders()))
def test_options_of_a_folder_are_those_of_the_catalog_and_described(folder, pages):
    rows = [line.strip("| ").split(" | ") for line in option_table(folder).splitlines()[2:]]
    wanted = {(name, option) for name in folders()[folder] for option in catalog.options(name)}
    assert {(name.strip("`"), row[0].strip("`")) for row in rows for name in row[2].split(", ")} == wanted
    assert all(len(row) == 4 and len(row[3]) > 5 for row in rows), "an option without a line under Attributes"
    page = (pages / "mechanisms" / f"{folder}.md").read_text()
    assert option_table(folder) in page
    assert "<svg" in page
    assert "```mermaid" not in page


def test_the_command_reference_has_every_task_and_option(pages):
    text = (pages / "commands.md").read_text()
    assert re.findall(r"^## \./inv (\S+)$", text, re.M) == list(tasks_of(tasks.namespace))
    for task in tasks_of(tasks.namespace).values():
        for option in getattr(task, "options", ()):
            assert f"`{option.flag}{'' if option.kind == FLAG else ' ' + option.metavar}`".rstrip() in text
