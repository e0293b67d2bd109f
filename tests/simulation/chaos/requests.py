"""What a seed asks of its query besides commands: changes of its pipeline, and a policy that rescales it."""

from collections.abc import Iterable
from random import Random

CHANGES = ("replace", "insert", "mark", "remove", "shape", "shape", "shape", "fails", "rare", "migrate-fails")
"""What a change does: another operator, a step that leaves records out or marks results, a step less, another shape of
state; code that fails on all records, or on rare ones; a `migrate` that fails on all states, or on rare ones, and a
`back` that fails on some behind it."""
LASTING = 10_000  # epochs in which a failure takes a change back, where one may come at any time
Asked = tuple[int, str, int]  # epoch, kind, value


def draw_changes(seed: int, epochs: int) -> tuple[Asked, ...]:
    """Returns up to five changes, some of them at once; none for two seeds of five."""
    random = Random(seed + 11)
    if random.random() < 0.4:
        return ()
    found, epoch = [], random.randint(0, epochs // 3)
    for _ in range(random.randint(1, 5)):
        found.append((epoch, random.choice(CHANGES), random.randrange(1 << 16)))
        epoch += random.choice((0, 0, 1, 3, 6))
    if random.random() < 0.25:  # one that fails half way, and one that repairs it
        half = (1 << 16) - 1 - 2 - 4 - 8 - 16 - 32  # on some states, without a way back or one that fails, bin by bin
        back = 4 + 1024 if Random(seed + 17).random() < 0.5 else 0
        found = [
            (epochs // 4, "migrate-fails", random.randrange(1 << 16) & half | 512 | back),
            (epochs - 3, "shape", random.randrange(1 << 16) | 256),
            *found[-1:],
        ]
        found.sort(key=lambda asked: asked[0])
    return tuple(asked for asked in found if asked[0] < epochs)


def draw_policy(seed: int) -> str:
    """Returns the policy that rescales a query, "" for three seeds of four."""
    random = Random(seed + 13)
    policies = ("ds2:catch_up_s=5", "threshold:stabilisation_s=4", "dhalion:backlog_s=1,calm_s=4")
    return random.choice(policies) if random.random() < 0.25 else ""


def proof_epochs(changes: Iterable[Asked]) -> int:
    """Returns for how many epochs a change that is done may be taken back."""
    return 10 if {kind for _, kind, _ in changes} <= {"replace", "insert", "mark", "remove"} else LASTING


def draw_refused(seed: int) -> float:
    """Returns how many records come that cannot be applied, for each that can; most seeds have none."""
    random = Random(seed + 29)
    return random.choice((0.01, 0.1, 0.5)) if random.random() < 0.2 else 0.0


def draw_linked(seed: int) -> float:
    """Returns how often another query's results are sent again, for each of them; 0 where there are none."""
    return Random(seed + 29).choice((0.0, 0.0, 0.1))
