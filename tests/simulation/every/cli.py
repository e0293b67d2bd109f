"""`./inv simulate --exhaustive`: small worlds in every order of their events until one goes wrong; exit code 1."""

from concurrent.futures import ProcessPoolExecutor, as_completed

from rich.console import Console

from every.choices import Choices, choices_of, text_of
from every.explore import Found, explore, run
from every.small import MECHANISMS, Small


def explore_all(console: Console, *, minutes: float, jobs: int) -> int:
    """Explores the world of each mechanism for its share of the time and returns the exit code."""
    jobs = min(jobs, len(MECHANISMS))
    seconds = 60 * minutes * jobs / len(MECHANISMS)
    with ProcessPoolExecutor(jobs) as pool:
        searches = {pool.submit(explore, Small(name), seconds=seconds): name for name in MECHANISMS}
        for search in as_completed(searches):
            name, found = searches[search], search.result()
            console.print(sentence_of(name, found), markup=False)
            if found.violation is not None:
                console.print(*found.violation.trace, sep="\n  ", markup=False)
                choices = text_of(bytes(found.violation.choices.taken))
                console.print(f"Again: ./inv simulate --replay {name}={choices}", markup=False)
                pool.shutdown(cancel_futures=True)
                return 1
    return 0


def replay(console: Console, text: str) -> int:
    """Runs the world of a mechanism with its choices, as `explore_all` prints them, and returns the exit code."""
    name, _, choices = text.partition("=")
    if name not in MECHANISMS:
        console.print(f"There is no small world of {name!r}: use one of {', '.join(MECHANISMS)}.", markup=False)
        return 2
    try:
        ran = run(Small(name), Choices(choices_of(choices), set()))
    except (ValueError, IndexError):
        console.print(f"{choices!r} are no choices of {name}: copy them from what --exhaustive prints.", markup=False)
        return 2
    console.print(*ran.trace, sep="\n  ", markup=False)
    if ran.violation is not None:
        console.print(f"It violates {ran.violation!r}: {ran.sentence}.", markup=False)
        return 1
    console.print("Nothing is violated.", markup=False)
    return 0


def sentence_of(name: str, found: Found) -> str:
    """Returns what a search came to, and how far it came."""
    what = (
        f"{name}: {found.states:,} states, {found.runs:,} runs, {found.ends:,} of them to the end, at most "
        f"{found.depth} choices, {found.seconds:.0f} s"
    )
    if found.violation is not None:
        return f"{what}; violates {found.violation.violation!r}: {found.violation.sentence}"
    if found.whole:
        return f"{what}; every order, no violation"
    upto = f"every order with at most {found.complete} deviations" if found.complete >= 0 else "not every place to fail"
    return f"{what}; {upto}, no violation; {found.waiting:,} beginnings are left"
