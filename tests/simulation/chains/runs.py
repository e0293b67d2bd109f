"""A chain from its first epoch to its last, with everything that goes wrong in it."""

from contextlib import ExitStack
from pathlib import Path
from random import Random

from chaos.checks import check_journals
from chaos.folders import folder_of_its_own
from chaos.outcome import Outcome
from chaos.violation import Violation, counted, require
from realtime.commits import Commits
from realtime.oracle import Oracle
from realtime.patches import simulated
from realtime.runs import REST, quiet
from realtime.troubles import Troubles

from chains.parameters import ChainParameters
from chains.query import Chain
from impls.store.environment import Store


def simulate(p: ChainParameters) -> Outcome:
    """Runs a chain in a folder of its own, in memory where the system has such a file system."""
    with folder_of_its_own() as folder:
        return _run(p, folder)


def _run(p: ChainParameters, folder: Path) -> Outcome:
    (folder / "scratch").mkdir()
    troubles, violation, sentence = Troubles(p.stages[0]), None, ""
    with ExitStack() as stack:
        stack.enter_context(simulated(p.stages[0], troubles.point))
        commits = [Commits(folder / str(stage)) for stage in range(len(p.stages))]
        for seen in commits:
            stack.enter_context(seen.seen())
        scratch = stack.enter_context(Store.open(folder / "scratch"))
        chain = Chain(p, troubles, folder)
        queries = chain.queries
        oracles = [Oracle(*given, scratch, c) for *given, c in zip(p.stages, queries, commits, strict=True)]
        try:
            _epochs(p, chain, oracles, troubles)
        except Violation as error:
            ran = [query.driver.last_epoch for query in queries]
            violation = error.check
            sentence = error.sentence(f"Chain {p.seed}", p, counted(troubles.fired), f"after {ran}", folder=folder)
        finally:
            for query in queries:
                query.close()
    return Outcome(
        p.seed, violation, sentence, "".join(o.digest.hexdigest() for o in oracles),
        sum(query.driver.last_epoch + 1 for query in queries), queries[0].starts, sum(query.steps for query in queries),
        troubles.fired, sum(query.sessions for query in queries),
    )  # fmt: skip


def _epochs(p: ChainParameters, chain: Chain, oracles: list[Oracle], troubles: Troubles) -> None:
    """Runs epochs of any query until all is done, the last ones in peace."""
    random, ran, after = Random(p.seed + 47), [0] * len(p.stages), 0
    last = sum(own.epochs + 3 * own.bins * len(own.commands) + 150 for own in p.stages)
    while min(ran) < p.stages[0].epochs or after < len(ran) * REST:
        require(sum(ran) < last, "goal", "the chain does not come to rest")
        troubles.on = min(ran) < p.stages[0].epochs
        stage = random.randrange(len(ran)) if troubles.on else sum(ran) % len(ran)
        query, own = chain.queries[stage], p.stages[stage]
        for epoch, kind, value in own.commands:
            if epoch == ran[stage]:
                query.command(kind, value)
        if not troubles.on:
            query.load.produce(1_000)
        query.epoch()
        oracles[stage].epoch()
        if ran[stage] % 6 == 5:
            check_journals(own, query.driver)  # type: ignore[arg-type]
        rests = not troubles.on and chain.caught_up and all(map(quiet, chain.queries))
        ran[stage], after = ran[stage] + 1, after + 1 if rests else 0
    for oracle in oracles:
        oracle.end()
