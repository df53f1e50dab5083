"""The libraries that a run needs beyond the core, looked for before any work."""

from __future__ import annotations

from importlib.util import find_spec

from anyrnn.errors import MissingExtraError
from anyrnn.train.options import DatasetName

# module: (name on the package index, extra that brings it)
ALWAYS = {
    "torch": ("torch", "torch"),
    "safetensors": ("safetensors", "torch"),
    "matplotlib": ("matplotlib", "plot"),
    "tqdm": ("tqdm", "all"),
}
FOR_DATASET: dict[DatasetName, dict[str, tuple[str, str]]] = {
    "digits": {"sklearn": ("scikit-learn", "all")},
    "mnist": {},
    "vowels": {},
}


def require(dataset: DatasetName) -> None:
    """Find everything that a run on this data set imports.

    Raises: MissingExtraError that names what is missing and the `pip install` that brings it.
    """
    missing = [need for module, need in {**ALWAYS, **FOR_DATASET[dataset]}.items() if find_spec(module) is None]
    if not missing:
        return
    names = ", ".join(name for name, _ in missing)
    extras = {extra for _, extra in missing}
    extra = extras.pop() if len(extras) == 1 else "all"
    verb = "is" if len(missing) == 1 else "are"
    raise MissingExtraError(f'`anyrnn train {dataset}` needs {names}, which {verb} not installed: pip install "anyrnn[{extra}]"')
