"""Builds the site into a folder, strictly, and shows it on this machine."""

import contextlib
import functools
import http.server
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from invoke.collection import Collection

from harness.docs.pages import command_reference, write_pages
from harness.files import ROOT
from impls.errors import UsageError

_LOOPBACK = "127.0.0.1"
_TAIL = 15  # lines of what the generator says


def build(root: Path, folder: Path, generated: Mapping[str, Callable[[], str]]) -> None:
    """Builds the site; what is in the folder is replaced once the new one is complete.

    Args:
        root: the repository.
        folder: the site's; a folder that holds something else is left as it is.
        generated: see `write_pages`.

    Raises:
        UsageError: a link, a reference or a figure is broken, the text is not well formed, or the folder is no site.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / "objects.inv").exists():
        raise UsageError(f"The folder {folder} holds other files and is no site: name another.")
    with tempfile.TemporaryDirectory() as temporary:
        pages, site = Path(temporary) / "pages", Path(temporary) / "site"
        pages.mkdir()
        write_pages(root, pages, generated)
        _run_sphinx(root, pages, site)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(site, folder, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo*"))


def _run_sphinx(root: Path, pages: Path, site: Path) -> None:
    """Runs the generator in a process of its own; a warning is an error."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(pages), str(site)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).replace(f"{pages}/", "").strip().splitlines()
        raise UsageError("\n".join(["The site was not built:", *said[-_TAIL:]]))


def _serve(folder: Path, port: int) -> None:
    """Shows a folder at a port of this machine until it is interrupted; raises UsageError for a port in use."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    try:
        server = http.server.ThreadingHTTPServer((_LOOPBACK, port), handler)
    except OSError as error:
        raise UsageError(f"The port {port} cannot be listened on ({error.strerror}): choose another.") from error
    with server, contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(f"http://{_LOOPBACK}:{server.server_port}/ (Ctrl-C ends it)\n")
        sys.stdout.flush()
        server.serve_forever()


def build_docs(namespace: Collection, *, folder: str | None, serve: bool, port: int) -> None:
    """Does what `./inv docs` says: builds the site, prints its start page, and shows it if asked to.

    Args:
        namespace: the tasks of the command reference.
        folder: the site's, `site/` for none.
        serve: whether to show it.
        port: where.
    """
    site = Path(folder) if folder else ROOT / "site"
    build(ROOT, site, {"commands": lambda: command_reference(namespace)})
    sys.stdout.write(f"{(site / 'index.html').absolute()}\n")
    if serve:
        _serve(site, port)
