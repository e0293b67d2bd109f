"""The site as it is built: complete, with every link and anchor, without a byte from elsewhere."""

import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from blocks import ROOT

from harness.docs.build import _serve, build
from harness.docs.pages import documents
from impls.errors import UsageError

pytestmark = [pytest.mark.lengthy, pytest.mark.timeout(600)]

PROGRAM = [sys.executable, "-P", str(ROOT / "harness" / "cli" / "program.py"), "--search-root", str(ROOT)]
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
LOADED = {"stylesheet", "icon", "preload", "search", "manifest", "font"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as users build it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run([*PROGRAM, "docs", "--folder", str(folder)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{folder / 'index.html'}\n"), done.stdout + done.stderr
    return folder


class Page(HTMLParser):
    """What a page loads, where it links to, and the places in it that can be linked to."""

    def __init__(self, path: Path):
        super().__init__()
        self.loads, self.links, self.anchors = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif (
            tag in LOADS
            and given.get(LOADS[tag], "#") != "#"
            and (tag != "link" or LOADED & set(given.get("rel", "").split()))
        ):
            self.loads.append(given[LOADS[tag]])


@cache
def page_of(path: Path) -> Page:
    return Page(path)


def test_every_document_is_a_page(site):
    assert [p for p in documents(ROOT).values() if not (site / p.with_suffix(".html")).is_file()] == []


@pytest.mark.capability
def test_every_link_leads_to_a_page_and_a_place_in_it(site):
    checked = 0
    for path in site.rglob("*.html"):
        for link in page_of(path).links:
            target, _, mark = link.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            other = (path.parent / unquote(target)).resolve() if target else path
            assert other.is_file(), f"{path.relative_to(site)} links to {link}, which is not there"
            if mark and other.suffix == ".html":
                assert unquote(mark) in page_of(other).anchors, f"{path.relative_to(site)}: no place {link}"
                checked += 1
    assert checked > 500


def test_nothing_is_loaded_from_elsewhere(site):
    for path in site.rglob("*.html"):
        for loaded in page_of(path).loads:
            assert not re.match(r"(https?:)?//", loaded), f"{path.relative_to(site)} loads {loaded}"
            assert (path.parent / loaded.split("?")[0]).resolve().is_file(), f"{path.relative_to(site)}: no {loaded}"
    for path in site.rglob("*.css"):
        outside = re.findall(r"(?:@import|url\()\s*['\"]?((?:https?:)?//[^'\")]+)", path.read_text())
        assert not outside, f"{path.relative_to(site)} loads {outside}"


@pytest.mark.parametrize(
    "text", ["[x](#nowhere)\n", "[x](two.md#nowhere)\n", "```{eval-rst}\n.. autofunction:: impls.nothing\n```\n"]
)
def test_a_broken_reference_ends_the_build_and_leaves_the_old_site(tmp_path, text):
    repository, folder = tmp_path / "repository", tmp_path / "site"
    pages = {"index.md": f"# One\n\n{text}\n```{{toctree}}\ntwo\nresults/files\n```\n", "two.md": "# Two\n"}
    for name, content in pages.items():
        (repository / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / "docs" / name).write_text(content)
    (repository / "results").mkdir()
    (repository / "results" / "README.md").write_text("# Files\n")
    shutil.copy(ROOT / "docs" / "conf.py", repository / "docs")
    shutil.copytree(ROOT / "docs" / "_static", repository / "docs" / "_static")
    folder.mkdir()
    (folder / "objects.inv").write_text("the old one")
    with pytest.raises(UsageError, match=r"The site was not built:(.|\n)*no(thing|where)"):
        build(repository, folder, {})
    assert [path.name for path in folder.iterdir()] == ["objects.inv"]


def test_it_is_shown_until_it_is_interrupted(tmp_path):
    command = [*PROGRAM, "docs", "--folder", str(tmp_path / "site"), "--serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as shown:
        try:
            assert shown.stdout.readline() == f"{tmp_path / 'site' / 'index.html'}\n"
            address = shown.stdout.readline().split()[0]
            page = urllib.request.urlopen(f"{address}guides/engineer.html", timeout=30).read().decode()
            assert "transformWithState" in page
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                with pytest.raises(UsageError, match="cannot be listened on"):
                    _serve(tmp_path / "site", taken.getsockname()[1])
        finally:
            shown.send_signal(signal.SIGINT)
        assert shown.wait(30) == 0


def test_a_folder_that_is_no_site_is_left_as_it_is(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="holds other files and is no site"):
        build(ROOT, tmp_path, {})
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
