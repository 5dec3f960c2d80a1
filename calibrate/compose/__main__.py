"""Command line: compose the named profiles (else all that the folders allow) and print the checks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from calibrate.compose.checks import report
from calibrate.compose.recipes import NAMES, compose, names_for
from calibrate.compose.tables import PACKAGE, Folders, TableError
from calibrate.configs import ShapeError
from calibrate.profile import save_profile
from calibrate.sharding import Split


def main(arguments: list[str] | None = None) -> int:
    """Write ``OUT/NAME.json`` for every name, then the table of checks; 2 when a table is missing."""
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown profile {unknown[0]!r}; one of {', '.join(NAMES)}")
    folders = Folders(options.tables, options.groundtruth, options.configs, options.package, options.bundles)
    try:
        split = _split(options)
        for name in options.names or names_for(folders):
            profile = compose(name, folders, split, options.draft_tp)
            path = options.out / f"{profile.name}.json"
            save_profile(profile, path)
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
        if not options.no_checks:
            print(report(folders))
    except (TableError, ShapeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _split(options: argparse.Namespace) -> Split | None:
    """The split that was asked for; ``None``: the recipes' own."""
    if options.tp is None and options.ep == options.dp == 1:
        return None
    return Split(options.tp or 1, options.ep, options.dp)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m calibrate.compose", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--tables", type=Path, required=True, help="aiconfigurator Parquet files")
    parser.add_argument("--groundtruth", type=Path, required=True, help="MoE and Vidur CSV files")
    parser.add_argument("--configs", type=Path, required=True, help="model_configs/ and draft_configs/")
    parser.add_argument("--package", type=Path, help=f"systems/data of {PACKAGE}, for what --tables lacks")
    parser.add_argument("--bundles", type=Path, help="profiler/perf of casys-kaist/LLMServingSim")
    parser.add_argument("--tp", type=int, help="lay the target over this many devices")
    parser.add_argument("--ep", type=int, default=1, help="share whole experts among tp x dp devices")
    parser.add_argument("--dp", type=int, default=1, help="replicas that share their experts")
    parser.add_argument("--draft-tp", type=int, help="devices of the drafter (default: the target's)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the profiles")
    parser.add_argument("--no-checks", action="store_true", help="only write the profiles")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
