"""g2p_en's encoder and decoder, which spell English words in sounds."""

import time
from collections.abc import Callable

import pytest

from anyrnn.files import npz
from tests.runtime.real import G2p, G2pLoop, words


@pytest.fixture(scope="module")
def network(request):
    shared = request.getfixturevalue("shared")
    arrays, _ = npz.read(shared("checkpoints/g2p_en") / "checkpoint20.npz")
    return arrays, words(shared("data/text") / "tiny_shakespeare.txt", 1000)


@pytest.fixture(scope="module")
def spelled(network):
    arrays, many = network
    loop = G2pLoop(arrays)
    return [loop.spell(word) for word in many]


def test_a_batch_spells_as_the_loop_does(network, spelled):
    arrays, many = network
    assert len(set(map(tuple, spelled))) > 900
    assert G2p(arrays).spell_all(many) == spelled


def test_word_by_word_it_spells_as_the_loop_does(network, spelled):
    arrays, many = network
    spell = G2p(arrays).spell
    assert [spell(word) for word in many[:300]] == spelled[:300]


def test_numpy_alone_spells_as_the_loop_does(network, spelled):
    arrays, many = network
    ours = G2p(arrays, backend="reference")
    assert ours.spell_all(many[:200]) == spelled[:200]
    assert [ours.spell(word) for word in many[:20]] == spelled[:20]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@pytest.mark.timing
def test_it_is_quicker_than_the_loop(network):
    """At least ten times in one batch, and twice word by word."""
    arrays, many = network
    loop, ours = G2pLoop(arrays), G2p(arrays)
    ours.spell_all(many), ours.spell("word")
    theirs, batch, single = [], [], []
    for _ in range(9):
        theirs.append(seconds(lambda: [loop.spell(word) for word in many]))
        batch.append(seconds(lambda: ours.spell_all(many)))
        single.append(seconds(lambda: [ours.spell(word) for word in many]))
    assert min(theirs) >= 10 * min(batch)
    assert min(theirs) >= 2 * min(single)
