"""A process that does items: `python -m benchmarks.gpu.worker PART...`, told what to do line by line.

It says first what items there are, as [part, name]. Then each line it reads is [part, name, timed]; it does that item and
answers with what was found, and whether it goes on. Not timed, an item that measures is done once, so that all is compiled. An
error of the device itself ends the process: nothing that it does afterwards would be right.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from functools import partial
from typing import Any, TextIO

from benchmarks.gpu import speeds
from benchmarks.gpu.items import NOT_HERE, NotHereError, failed, is_the_devices, parts

ALL = "all of it"
"""The name of a part whose items are not known, as asking for them raised."""


def main(wanted: list[str], told: TextIO, answers: TextIO) -> int:
    def say(found: Any) -> None:
        print(json.dumps(found), file=answers, flush=True)

    made: dict[tuple[str, str], Any] = {}
    for part in wanted:
        try:
            made |= {(part, name): make for name, make in parts()[part]()}
        except Exception as error:  # noqa: BLE001, PERF203  (a part that breaks must not take the others with it)
            made[part, ALL] = partial(str, failed(error))
    say(list(made))
    for line in told:
        part, name, timed = json.loads(line)
        speeds.ONCE, goes_on = not timed, True
        try:
            found = made[part, name]()
        except NotHereError as error:
            found = f"{NOT_HERE}: {error}"
        except Exception as error:  # noqa: BLE001  (nor an item)
            print(f"{part}: {name}", traceback.format_exc(), sep="\n", file=sys.stderr, flush=True)
            found, goes_on = failed(error), not is_the_devices(error)
        say([found, goes_on])
        if not goes_on:
            return 1
    return 0


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    raise SystemExit(main(sys.argv[1:], sys.stdin, answers))
