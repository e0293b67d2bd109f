"""Files of numbered records as a query's input, and what a function has been called with by `foreach_process`."""

import json
import os
from collections import Counter

USERS = 20


class Files:
    """Files with numbered records; the order of time is not that of names."""

    def __init__(self, folder):
        self.folder, self.sent, self.files = folder / "input", 0, []
        self.folder.mkdir()

    def write(self, records, *, kind="json"):
        rows = [{"user": f"u{n * 7 % USERS}", "number": n} for n in range(self.sent, self.sent + records)]
        name = f"{len(self.files) * 37 % 101:03}.{kind}"
        if kind == "json":
            (self.folder / f".{name}").write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(rows), self.folder / f".{name}", row_group_size=7)
        when = 1_750_000_000_000 + 10 * len(self.files)  # ms: some files of one second
        os.utime(self.folder / f".{name}", ns=(when * 1_000_000, when * 1_000_000))
        (self.folder / f".{name}").rename(self.folder / name)  # it is whole when Spark lists it
        self.files.append(rows)
        self.sent += records

    def counts(self):
        """How many records each user has."""
        return dict(Counter(row["user"] for rows in self.files for row in rows))

    def expected(self, per_epoch):
        """The rows of each epoch, when so many files are read in each, in the order of time."""
        counts, found = {}, []
        for first in range(0, len(self.files), per_epoch):
            rows = {}
            for record in (row for rows_ in self.files[first : first + per_epoch] for row in rows_):
                user = record["user"]
                counts[user] = counts.get(user, 0) + 1
                rows[user] = (user, counts[user], record["number"])
            found.append(sorted(rows.values()))
        return found


def calls_in(folder):
    """The calls of the function: an epoch and its rows each."""
    file = folder / "calls.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
