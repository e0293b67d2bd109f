"""The three best scores of each game, kept in a list state that is put anew."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class TopThree(StatefulProcessor):
    def init(self, handle):
        self._best = handle.getListState("best", "score int, player string")

    def handleInputRows(self, key, rows, timerValues):
        before = [tuple(entry) for entry in self._best.get()]
        best = sorted([*before, *((row.score, row.player) for row in rows)], reverse=True)[:3]
        if best != before:
            self._best.put(best)
            for rank, (score, player) in enumerate(best, 1):
                yield Row(game=key[0], rank=rank, player=player, score=score)


INPUT = "game string, player string, score int"
OUTPUT = "game string, rank int, player string, score int"
CHUNKS = [
    [("go", "ann", 10), ("go", "bob", 30), ("chess", "cy", 5)],
    [("go", "cy", 20), ("go", "ann", 25), ("chess", "ann", 5), ("go", "dora", 1)],
    [("go", "eve", 0), ("chess", "bob", 5), ("chess", "bob", 4)],
    [("go", "bob", 30), ("go", "zoe", 31)],
]
CASE = Case(TopThree, INPUT, OUTPUT, CHUNKS, key=("game",))
