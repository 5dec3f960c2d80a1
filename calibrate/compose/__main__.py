"""Command line: compose the named profiles (all when none is named) and print the checks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from calibrate.compose.checks import report
from calibrate.compose.recipes import NAMES, compose
from calibrate.compose.tables import PACKAGE, Folders, TableError
from calibrate.profile import save_profile


def main(arguments: list[str] | None = None) -> int:
    """Write ``OUT/NAME.json`` for every name, then the table of checks; 2 when a table is missing."""
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown profile {unknown[0]!r}; one of {', '.join(NAMES)}")
    folders = Folders(options.tables, options.groundtruth, options.configs, options.package, options.bundles)
    try:
        for name in options.names or NAMES:
            path = options.out / f"{name}.json"
            save_profile(compose(name, folders), path)
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
        if not options.no_checks:
            print(report(folders))
    except (TableError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m calibrate.compose", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--tables", type=Path, required=True, help="aiconfigurator Parquet files")
    parser.add_argument("--groundtruth", type=Path, required=True, help="MoE and Vidur CSV files")
    parser.add_argument("--configs", type=Path, required=True, help="model_configs/ and draft_configs/")
    parser.add_argument("--package", type=Path, help=f"systems/data of {PACKAGE}, for what --tables lacks")
    parser.add_argument("--bundles", type=Path, help="profiler/perf of casys-kaist/LLMServingSim")
    parser.add_argument("--out", type=Path, required=True, help="folder for the profiles")
    parser.add_argument("--no-checks", action="store_true", help="only write the profiles")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
