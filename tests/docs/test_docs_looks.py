"""Every page of the site in a browser, wide and on a phone, light and dark: nothing juts out, all can be read."""

import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from blocks import ROOT

import tasks
from harness.docs.build import build
from harness.docs.pages import command_reference

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.lengthy,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
BROWSER = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=240000")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The site's folder and its address."""
    folder = tmp_path_factory.mktemp("looks") / "site"
    build(ROOT, folder, {"commands": lambda: command_reference(tasks.namespace)})
    shutil.copy(Path(__file__).parent / "looked_at.html", folder)
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def looked_at(address: str, pages: list[str], width: int, profile: Path) -> list[str]:
    """What a reader would stumble over in pages so many pixels wide."""
    query = f"{address}/looked_at.html?width={width}&pages={','.join(pages)}"
    window = [f"--window-size={width},900", f"--user-data-dir={profile}"]
    done = subprocess.run(
        [CHROMIUM, *BROWSER, *window, "--dump-dom", query], capture_output=True, text=True, timeout=300, check=True
    )
    told = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
    assert told, done.stdout[-2000:]
    assert told[1], "the pages were not looked at to the end"
    answer = json.loads(html.unescape(told[1]))
    assert answer["pages"] == len(pages)
    return answer["found"]


@pytest.mark.parametrize("width", [1400, 375])
def test_every_page_can_be_read(served, width, tmp_path):
    folder, address = served
    pages = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.html") if "_modules" not in p.parts)
    pages.remove("looked_at.html")
    assert len(pages) > 25
    found = looked_at(address, pages, width, tmp_path)
    assert not found, "\n".join(found)


def test_what_juts_out_or_cannot_be_read_is_seen(served, tmp_path):
    folder, address = served
    text = (folder / "index.html").read_text()
    wide = '<table style="width: 3000px"><tr><td style="color: #eee">far out</td></tr></table>'
    (folder / "bad.html").write_text(text.replace("</h1>", f"</h1>{wide}", 1))
    found = "\n".join(looked_at(address, ["bad.html"], 375, tmp_path))
    (folder / "bad.html").unlink()
    assert re.search(r"TABLE ends at \d+ px: far out", found), found
    assert "contrast of 1.2 in light: far out" in found
