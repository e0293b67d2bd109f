"""The pages of docs/ run from top to bottom, as their readers would run them, in a copy of the repository."""

import pytest
from blocks import Sandbox, blocks_of

from harness.files import ROOT

PAGES = {page.relative_to(ROOT).as_posix(): blocks_of(page) for page in sorted((ROOT / "docs").rglob("*.md"))}
RUN = [page for page, blocks in PAGES.items() if any(block.way == "run" for block in blocks)]
SLOW = [page for page, blocks in PAGES.items() if any(block.way == "slow" for block in blocks)]
WITH_KAFKA = {page for page, blocks in PAGES.items() if any("BROKER" in block.text for block in blocks)}
WITH_SPARK = "docs/guides/engineer.md"  # the one page of them that is run by default, for the time it takes
BY_DEFAULT = {page for page in RUN if page == WITH_SPARK or page not in WITH_KAFKA}


@pytest.mark.capability("docs/guides/evaluator.md")
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
