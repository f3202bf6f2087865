"""Tables of the kept results, and what differs between two sets of results. Needs only Python 3.10.

    profiles/report/run --results                                   writes profiles/RESULTS.md
    profiles/report/run --readme                                    writes the numbers of README.md
    profiles/report/run NEW [FOLDER ...] --against OLD [FOLDER ...] what has changed; later folders fill what the first ones lack
"""

import argparse
import math
import pathlib
import sys

import compare
import parse
import readme
import results


def percent(text):
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text} is no percentage, expected 0 or more")
    return value


def options(arguments):
    parser = argparse.ArgumentParser(
        prog="profiles/report/run", formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    files = {"--results": results.ROOT / "profiles" / "RESULTS.md", "--readme": results.ROOT / "README.md"}
    for name, path in files.items():
        parser.add_argument(name, nargs="?", const=path, type=pathlib.Path, metavar="FILE", help=f"make {path.name} anew, or FILE")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="results; the first folder that has a file of a kind gives it")
    parser.add_argument("--against", nargs="+", metavar="FOLDER", help="compare with these")
    parser.add_argument("--tolerance", type=percent, default=5.0, metavar="PCT", help="changes up to that are not shown (5)")
    parser.add_argument("--fail-beyond", type=percent, metavar="PCT", help="exit status 1 if a median is worse by more than that")
    parser.add_argument("--tails", action="store_true", help="--fail-beyond counts 99th percentiles, too")
    given = parser.parse_args(arguments)
    if bool(given.folders) != bool(given.against) or not (given.folders or given.results or given.readme):
        parser.error("expected --results, --readme, or folders and --against other folders")
    for folder in given.folders + (given.against or []):
        if not pathlib.Path(folder).is_dir():
            parser.error(f"{folder} is not a folder")
    return given


def compare_folders(given):
    (after, unread), (before, more) = parse.load(given.folders), parse.load(given.against)
    for path, why in unread + more:
        print(f"{path} is not read: {why}", file=sys.stderr)
    changes = compare.compare(before, after)
    if not changes:
        print("the two sets have no number in common", file=sys.stderr)
        return 1 if given.fail_beyond is not None else 0
    print(compare.table(changes, given.tolerance))
    if given.fail_beyond is not None and (bad := compare.regressions(changes, given.fail_beyond, given.tails)):
        print(f"{len(bad)} numbers are worse by more than {given.fail_beyond:g}%", file=sys.stderr)
        return 1
    return 0


def main(arguments):
    given = options(arguments)
    try:
        if given.results:
            given.results.write_text(results.make(), encoding="utf-8")
        if given.readme:
            text = readme.replace(given.readme.read_text(encoding="utf-8"))
            given.readme.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"{given.readme or given.results}: {error}", file=sys.stderr)
        return 2
    return compare_folders(given) if given.folders else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
