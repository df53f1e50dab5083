import importlib.util

import pytest

from anyrnn.errors import MissingExtraError
from anyrnn.train import requirements


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name in missing else real(name))


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["torch"], '`anyrnn train digits` needs torch, which is not installed: pip install "anyrnn[torch]"'),
        (["safetensors"], '`anyrnn train digits` needs safetensors, which is not installed: pip install "anyrnn[torch]"'),
        (["matplotlib"], '`anyrnn train digits` needs matplotlib, which is not installed: pip install "anyrnn[plot]"'),
        (["tqdm"], '`anyrnn train digits` needs tqdm, which is not installed: pip install "anyrnn[all]"'),
        (["sklearn"], '`anyrnn train digits` needs scikit-learn, which is not installed: pip install "anyrnn[all]"'),
        (
            ["torch", "matplotlib"],
            '`anyrnn train digits` needs torch, matplotlib, which are not installed: pip install "anyrnn[all]"',
        ),
    ],
)
def test_what_is_missing_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, missing: list[str], message: str
) -> None:
    without(monkeypatch, *missing)
    with pytest.raises(MissingExtraError) as raised:
        requirements.require("digits")
    assert str(raised.value) == message


def test_mnist_does_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "sklearn")
    requirements.require("mnist")


def test_the_extras_are_those_of_the_package() -> None:
    """Each extra named in a message brings the module; read from the metadata of an installed package, where there is one."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        required = requires("anyrnn") or []
    except PackageNotFoundError:
        pytest.skip("anyrnn is not installed, only importable")
    for name, extra in [*requirements.ALWAYS.values(), *requirements.FOR_DATASET["digits"].values()]:
        assert any(line.startswith(name) and f"extra == '{extra}'" in line.replace('"', "'") for line in required), (name, extra)
