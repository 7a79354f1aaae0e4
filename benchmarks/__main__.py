"""The command ``python -m benchmarks``: measures Detent and its peers side by side."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import audio, coding, environment, machine, notebook, report, show, trust
from benchmarks.plan import GROUPS, WORKLOADS, Medians
from benchmarks.runner import run_workload

CHOICES = (*GROUPS, "coding", "notebook", "audio", "show", "trust")
"""What can be measured; `coding` is held against bounds, `notebook` beside others' models, `audio` scores
what is heard, `show` what is made of it, `trust` is simulated."""


def chosen(text: str) -> list[str]:
    """Read a comma-separated list of workloads."""
    picked = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in picked if name not in CHOICES]
    if unknown or not picked:
        raise argparse.ArgumentTypeError(f"choose from {', '.join(CHOICES)}, not {text!r}")
    return picked


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", type=chosen, default=list(CHOICES), metavar="LIST", help=",".join(CHOICES))
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer repeats")
    parser.add_argument("--repeats", type=int, help="runs of each contestant (5, or 3 when quick)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    if options.repeats is not None and options.repeats < 1:
        parser.error("--repeats must be at least 1")
    return options


def main() -> None:
    """Set up the peers, run the chosen workloads, print the tables and write the JSON."""
    options = arguments()
    repeats = options.repeats or (3 if options.quick else 5)
    peers, why = None, ""
    wanted = [workload for workload in WORKLOADS if workload.group in options.only]
    if any(contestant.peer for workload in wanted for contestant in workload.contestants):
        try:
            peers = environment.ensure()
        except (environment.NoPeers, OSError) as problem:
            why = f"the peers' environment could not be made ({problem})"
            print(why, file=sys.stderr)
    facts = machine.facts(peers)
    print(describe(facts, options.quick, repeats))
    results: dict[str, Medians] = {}
    written: list[dict[str, Any]] = []
    for workload in wanted:
        if options.quick and workload.full_only:
            print(f"\n{workload.name}: left out by --quick")
            written.append({"workload": workload.name, "left_out": "quick"})
            continue
        param = workload.quick if options.quick else workload.full
        before = machine.load()
        outcomes = run_workload(workload, options.quick, repeats, peers, why)
        medians = report.medians_of(outcomes)
        judged = report.verdicts(workload, medians, options.quick)
        results[workload.name] = medians
        sizes = ", ".join(f"{key} {value}" for key, value in param.items())
        print(f"\n{workload.name}: {workload.title}\n  [{sizes}]")
        print(report.table(workload, outcomes, medians))
        for verdict in judged:
            print(f"  target: {verdict['target']}: {verdict['verdict']}, {verdict['measured']}")
        if not judged:
            print("  target: none stated, the times are the report")
        sys.stdout.flush()
        written.append(
            {
                "workload": workload.name,
                "param": param,
                "load": before,
                "outcomes": {
                    name: {"problem": outcome.problem, "runs": outcome.runs, "median": medians.get(name)}
                    for name, outcome in outcomes.items()
                },
                "not_taking_part": list(workload.absent),
                "targets": judged,
            }
        )
    if "coding" in options.only:
        written += coding.main(options.quick)
    if "notebook" in options.only:
        written += notebook.main(options.quick)
    if "audio" in options.only:
        print()
        audio.main(options.quick)
    if "show" in options.only:
        show.main(options.quick)
    if "trust" in options.only:
        print()
        trust.main(options.quick)
    growth = report.scale_growth(results)
    if growth:
        print(f"\n{growth}")
    if options.json:
        body = {"machine": facts, "quick": options.quick, "repeats": repeats, "workloads": written}
        options.json.write_text(json.dumps({**body, "scale_growth": growth}, indent=2) + "\n")


def describe(facts: dict[str, Any], quick: bool, repeats: int) -> str:
    """Sum up in a few lines what is measured on what."""
    peers = ", ".join(f"{name} {version or 'missing'}" for name, version in facts["peers"].items())
    peers = peers or "none wanted, or none could be installed"
    own = facts["versions"]["detent"] or "missing"
    load = "unknown" if facts["load"] is None else f"{facts['load']:.2f}"
    lines = [
        f"{facts['system']}, {facts['cores']} cores, load {load}, "
        f"Python {facts['python']}, SQLite {facts['sqlite']}, detent {own}",
        f"peers: {peers}",
        f"{'quick sizes' if quick else 'full sizes'}, median of {repeats} interleaved runs, "
        "each in a process of its own; ratios are times, so below 1x is faster",
    ]
    if facts["load"] is not None and facts["load"] > (facts["cores"] or 1) / 2:
        lines.append("WARNING: the machine is busy, so the figures are noisy")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
