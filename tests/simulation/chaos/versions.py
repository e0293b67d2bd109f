"""What must hold of versions of the pipeline and of the shapes of states, after every epoch."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from chaos.recipes import ALL
from chaos.violation import require
from chaos.workload import Workload
from impls.protocol.changing import Changing
from impls.protocol.report import Report
from impls.protocol.versions import Versions
from impls.store.tables import SHAPE


def check_versions(load: Workload, changing: Changing, versions: Versions | None, reports: list[Report]) -> None:
    """States have taken the shapes that they had to take, and a version was refused where it fails."""
    if versions is None:
        return
    turned = {(bin_, shape) for report in reports for bin_, shape in report.pipelines.turned}
    require(turned == load.turned, "shapes", f"bins have taken the shapes {turned}, not {load.turned}")
    known = {bin_: shape for bin_, shape in enumerate(changing.shape.tolist()) if shape}
    ours = {bin_: shape for bin_, shape in load.shape.items() if shape}
    require(known == ours, "shapes", f"the controller knows of the shapes {known}, not {ours}")
    named = {(report.worker, number) for report in reports for number, *_ in report.pipelines.failed}
    refused = {worker for worker, _ in named if not versions.trial}
    require(refused == load.refused, "refused", f"the workers {refused} refuse a version, not {load.refused}")
    numbers = {number for _, number in named}
    require(numbers <= {versions.trial or versions.guarded}, "refused", f"the versions {numbers} are refused")
    trial = load.recipes[versions.trial]
    if versions.trial and trial.chain.fails == ALL and not trial.steps:
        tried = {report.worker for report in reports if report.pipelines.tried}
        require({worker for worker, _ in named} == tried, "refused", f"of {tried} only {named} report a failure")


def check_shapes(shapes: Mapping[int, int], worker: int, items: Mapping[bytes, bytes], location: Any) -> None:
    """The shapes that a worker's environment notes are those of its bins' states."""
    found = {
        int.from_bytes(name[1:3], "big"): int.from_bytes(value[:-4], "big")
        for name, value in items.items() if name[:1] == SHAPE
    }  # fmt: skip
    for bin_ in np.flatnonzero(location == worker).tolist():
        ours, theirs = shapes.get(bin_, 0), found.get(bin_, 0)
        require(ours == theirs, "shapes", f"bin {bin_} has the shape {theirs} at worker {worker}, not {ours}")
