"""`rescale-bench`, or `python -m rescale_bench`: doctor, jars, version, and what of `./inv` needs no clone."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import rescale_bench
from impls.errors import UsageError

_NAME = "rescale-bench"
_HELP = {"--help", "-h", "--list", "-l"}


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code: 2 with one sentence for bad input."""
    arguments = list(sys.argv[1:] if words is None else words)
    try:
        if not arguments or arguments[0] in _HELP:
            sys.stdout.write(_parser().format_help() + _commands())
            return 0
        if arguments[0] in _OWN:
            return _run_own(_parser().parse_args(arguments))
        return _hand_over(arguments)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2


_OWN = {
    "doctor": "say what this machine lacks and how to get it; the exit code is 1 if something needed is missing",
    "jars": "fetch Spark's Kafka connector, once, and print its jars as spark.jars takes them",
    "version": "print the version",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(_NAME, description="Live state migration for Spark Structured Streaming.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    parsers = {name: commands.add_parser(name, help=about, description=about) for name, about in _OWN.items()}
    doctor = parsers["doctor"]
    doctor.add_argument("--state-dir", type=Path, help="folder in which workers are to keep their state")
    doctor.add_argument("--fetch", action="store_true", help="fetch the jars if they are not there")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _run_own(options: argparse.Namespace) -> int:
    if options.command == "version":
        sys.stdout.write(f"{rescale_bench.__version__}\n")
    elif options.command == "jars":
        sys.stdout.write(",".join(map(str, rescale_bench.connector())) + "\n")
    else:
        from harness.setup.doctor import report

        return report(options.state_dir, as_json=options.json, fetch=options.fetch)
    return 0


def _commands() -> str:
    """Returns a line for each command of the benchmark; where its libraries are not installed, how to get them."""
    try:
        from rescale_bench.verbs import listing
    except ModuleNotFoundError as error:
        return f"\n{_lacking(error)}\n"
    return f"\nOf the benchmark and of running queries ({_NAME} COMMAND --help says more):\n{listing()}\n"


def _hand_over(words: list[str]) -> int:
    """Runs a command of the benchmark, which ends the program."""
    try:
        from rescale_bench.verbs import run
    except ModuleNotFoundError as error:
        raise UsageError(_lacking(error)) from error
    run(_NAME, words)
    return 0


def _lacking(error: ModuleNotFoundError) -> str:
    """Returns what to do about a library that is missing; raises the error again if it is one of this package."""
    if (error.name or "").split(".")[0] in {"impls", "harness", "generators", "plots", "rescale_bench"}:
        raise error
    return f"The other commands need {error.name}: pip install 'rescale-bench[bench]'."


if __name__ == "__main__":
    sys.exit(main())
