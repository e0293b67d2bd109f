"""The operator of the README's example."""


def running_average():
    """The README's operator, of a class that workers need no file for."""
    from impls.operators import StatefulMap

    class RunningAverage(StatefulMap):
        columns = ("amount",)

        def update(self, key, record, state):
            count, total = state or (0, 0.0)
            count, total = count + 1, total + record["amount"]
            return (count, total), {"user": key.decode(), "average": total / count}

    return RunningAverage()
