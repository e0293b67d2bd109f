"""Everything this repository can do; `./inv --list` prints it."""

import sys

from invoke import Collection, Context

from harness.cli import cluster, docker, pipeline
from harness.cli.adoption import adopt, release  # noqa: F401 - found by invoke
from harness.cli.control import control  # noqa: F401 - found by invoke
from harness.cli.development import check, clean, dist, example, fmt, graph, lock, test  # noqa: F401 - found by invoke
from harness.cli.look import (  # noqa: F401
    compare,
    doctor,
    export,
    figures,
    history,
    mechanisms,
    report,
    reproduce,
    rescale,
    state,
    status,
    top,
    validate,
)
from harness.cli.suites import (  # noqa: F401
    autoscale,
    bench,
    changes,
    compare_engines,
    conformance,
    fault_test,
    generator_speed,
    nexmark,
    perf,
    profile,
    regress,
    simulate,
    simulate_scale,
    sweep,
    verify_claims,
)
from harness.cli.verb import run, verb
from harness.docs import DOCS


@verb(*DOCS)
def docs(c: Context, **given):
    """Build the documentation site, strictly: a broken link, reference or figure is an error."""
    run("harness.docs.build:build_docs", namespace, **given)


namespace = Collection.from_module(sys.modules[__name__])
namespace.add_collection(Collection.from_module(cluster, name="cluster"))
namespace.add_collection(Collection.from_module(docker, name="docker"))
namespace.add_collection(Collection.from_module(pipeline, name="pipeline"))
