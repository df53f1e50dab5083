"""The libraries that a run needs beyond the core, looked for before any work."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from anyrnn.errors import MissingExtraError
from anyrnn.train.options import DatasetName

Needs = Mapping[str, tuple[str, str]]
"""By module: the name on the package index, and the extra that brings it."""
ALWAYS: Needs = {
    "torch": ("torch", "torch"),
    "safetensors": ("safetensors", "torch"),
    "matplotlib": ("matplotlib", "plot"),
    "tqdm": ("tqdm", "all"),
}
FOR_DATASET: dict[DatasetName, Needs] = {
    "digits": {"sklearn": ("scikit-learn", "all")},
    "mnist": {},
    "vowels": {},
}


def require(dataset: DatasetName) -> None:
    """Find everything that a run on this data set imports.

    Raises: MissingExtraError that names what is missing and the `pip install` that brings it.
    """
    need(f"`anyrnn train {dataset}`", {**ALWAYS, **FOR_DATASET[dataset]})


def need(who: str, modules: Needs) -> None:
    """Find the modules that somebody imports. Raises: MissingExtraError, as above."""
    missing = [found for module, found in modules.items() if find_spec(module) is None]
    if not missing:
        return
    names = ", ".join(name for name, _ in missing)
    extras = {extra for _, extra in missing}
    extra = extras.pop() if len(extras) == 1 else "all"
    verb = "is" if len(missing) == 1 else "are"
    raise MissingExtraError(f'{who} needs {names}, which {verb} not installed: pip install "anyrnn[{extra}]"')
