"""The tables of a comparison: as text that is Markdown too, and with commas between plain numbers."""

from __future__ import annotations

import csv
import io
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

HEAD = ("#", "cell", "H", "parameters", "rate", "", "diverged", "steps/s", "seconds", "differs from")
COLUMNS = (
    *("cell", "hidden", "parameters", "learning_rate", "seeds", "diverged", "mean", "low", "high", "deviation"),
    *("steps_per_second", "seconds", "differs_from"),
)


def text(summary: Mapping[str, Any]) -> str:
    """The table, and what has to be known to read it."""
    return "\n".join([main(summary), "", *notes(summary), ""])


def markdown(summary: Mapping[str, Any], protocol: Mapping[str, Any], sessions: Sequence[Mapping[str, Any]]) -> str:
    """The same with the differences between cells, the protocol and what ran it."""
    lines = [f"# {summary['task']}: {summary['measure']}", "", main(summary), "", *(f"- {note}" for note in notes(summary))]
    if summary["pairs"]:
        lines += ["", "## Differences", "", differences(summary)]
    lines += ["", "## Protocol", "", "Decided before the first run.", ""]
    lines += [f"- {name.replace('_', ' ')}: {_plain(value)}" for name, value in protocol.items() if value is not None]
    lines += ["", "## Made with", ""]
    lines += list(dict.fromkeys(f"- {_made_with(session)}" for session in sessions))
    return "\n".join([*lines, ""])


def main(summary: Mapping[str, Any]) -> str:
    """A row for each cell."""
    unit = f", {summary['unit']}" if summary["unit"] else ""
    head = [name or summary["measure"] + unit for name in HEAD]
    numbers = {cell["cell"]: str(number) for number, cell in enumerate(summary["cells"], 1)}
    rows = [
        [
            numbers[cell["cell"]],
            cell["cell"].replace("|", "\\|"),
            str(cell["hidden"]),
            f"{cell['parameters']:,}",
            f"{cell['learning_rate']:g}",
            estimated(cell["mean"], cell["half"]),
            f"{cell['diverged']} of {len(cell['figures'])}",
            _short(cell["steps_per_second"]),
            _short(cell["seconds"]),
            ", ".join(numbers[other] for other in cell["differs_from"]),
        ]
        for cell in summary["cells"]
    ]
    return aligned([head, *rows], left=(1, 9))


def differences(summary: Mapping[str, Any]) -> str:
    """A row for each two cells."""
    head = ["first", "second", "difference", "seeds", "p", "p by Holm", ""]
    rows = [
        [
            *pair["cells"],
            estimated(pair["difference"], pair["half"]),
            str(pair["seeds"]),
            _probability(pair["p"]),
            _probability(pair["corrected_p"]),
            "differ" if pair["differ"] else "",
        ]
        for pair in summary["pairs"]
    ]
    return aligned([head, *rows], left=(0, 1, 6))


def notes(summary: Mapping[str, Any]) -> list[str]:
    """What has to be known to read the table, a sentence or two each."""
    cells, found = summary["cells"], []
    seeds = len(cells[0]["figures"])
    if seeds > 1:
        half = f"± is half of the 95 % confidence interval of the mean of {seeds} seeds, by Student's t"
        found.append(f"{half}; all have the same test data.")
    else:
        found.append("One seed tells no interval and no difference between cells; give --seeds 2 or more.")
    tested = sum(pair["p"] is not None for pair in summary["pairs"])
    if tested:
        corrected = f"paired by seed, with Holm's correction for {tested} test{'s' if tested > 1 else ''}"
        found.append(f"Differs from: the rows from which the mean differs with p < 0.05 by Student's t-test, {corrected}.")
    found += _notes_of_cells(cells)
    if summary["guess"] is not None:
        guess = f"{estimated(summary['guess'], None)} {summary['unit']}".rstrip()
        found.append(f"Without learning ({summary['guessing']}): {guess}.")
    found.append("steps/s is that of the median training step, seconds the mean time of a run's training steps.")
    return found


def _notes_of_cells(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    for cell in cells:
        name, runs = cell["cell"], len(cell["figures"])
        if cell["diverged"]:
            rest = "none is left" if cell["mean"] is None else "the mean is that of the others, which flatters it"
            found.append(f"{name}: {cell['diverged']} of {runs} runs diverged; {rest}.")
        if cell["diverged_while_tuning"]:
            found.append(f"{name}: {cell['diverged_while_tuning']} of the runs to choose the rate by diverged.")
        if cell["sizes"]:
            found.append(f"{name}: {_plain(cell['sizes'])}.")
    by_interpreter = "There are no kernels here, so that the interpreter ran them and their speed is no measure"
    for what, some in (
        ("The rate is at the edge of those tried, and a better one may lie beyond", [c for c in cells if c["rate_at_edge"]]),
        ("A linear layer brings the input to the size of the state", [c for c in cells if c["widened"]]),
        (by_interpreter, [c for c in cells if c["backend"] == "reference"]),
    ):
        if some:
            found.append(f"{what}: {', '.join(cell['cell'] for cell in some)}.")
    return found


def comma_separated(summary: Mapping[str, Any]) -> str:
    """A row for each cell, of numbers in full; what there is not is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for cell in summary["cells"]:
        low, high = cell["interval"] or (None, None)
        row = {**cell, "seeds": len(cell["figures"]), "low": low, "high": high, "differs_from": "; ".join(cell["differs_from"])}
        writer.writerow({name: row[name] for name in COLUMNS})
    return out.getvalue()


def estimated(mean: float | None, half: float | None) -> str:
    """A mean with the half of its interval, to two digits of that; with four digits where there is none.

    >>> estimated(97.1234, 0.4567), estimated(0.0123456, None), estimated(None, None)
    ('97.12 ± 0.46', '0.01235', '-')
    """
    if mean is None:
        return "-"
    if not half:
        return f"{mean:#.4g}".rstrip(".") + (" ± 0" if half == 0 else "")
    places = max(0, 1 - math.floor(math.log10(half)))
    return f"{mean:.{places}f} ± {half:.{places}f}"


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int]) -> str:
    """A table in Markdown whose columns stand one below the other; those not `left` end at the right."""
    widths = [max(3, *(len(row[k]) for row in rows)) for k in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        cells = [cell.ljust(w) if k in left else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))]
        return f"| {' | '.join(cells)} |"

    rule = ["-" * w if k in left else "-" * (w - 1) + ":" for k, w in enumerate(widths)]
    return "\n".join([line(rows[0]), f"| {' | '.join(rule)} |", *map(line, rows[1:])])


def _made_with(session: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in session["versions"].items())
    return f"{versions}; {session['system']}, threads: {session['threads']}; `{shlex.join(session['command'])}`"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _probability(p: float | None) -> str:
    if p is None:
        return "-"
    return f"{p:.2g}" if p >= 0.0001 else "< 0.0001"


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
