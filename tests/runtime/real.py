"""Real trained networks of other projects, as networks of the runtime and as the loops that they came with."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import anyrnn
from anyrnn import runtime

BEGIN, END, MOST = 2, 3, 20
"""Of g2p_en's sounds: before the first, after the last, and how many are made at the most."""
LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]


def words(text: Path, count: int) -> list[str]:
    """The words that are most frequent in a text."""
    found, counts = np.unique(re.findall(r"[a-z]+", text.read_text().lower()), return_counts=True)
    return [str(found[i]) for i in np.argsort(-counts, kind="stable")[:count]]


def letters(word: str) -> list[int]:
    return [*map(LETTERS.index, word), LETTERS.index("</s>")]


# g2p_en: an encoder and a decoder, each an embedding and a GRU (gates r, z, n), and a product


def _gru(gru_weights, x, h):
    w_ih, w_hh, b_ih, b_hh = gru_weights
    of_input, of_state = x @ w_ih.T + b_ih, h @ w_hh.T + b_hh
    size = h.shape[-1]
    r, z = np.split(1 / (1 + np.exp(-(of_input[:, : 2 * size] + of_state[:, : 2 * size]))), 2, -1)
    n = np.tanh(of_input[:, 2 * size :] + r * of_state[:, 2 * size :])
    return (1 - z) * n + z * h


class G2pLoop:
    """The loop over letters and sounds, in NumPy."""

    def __init__(self, arrays):
        self.arrays = arrays
        self.encoder = [arrays[f"enc_{name}"] for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
        self.decoder = [arrays[f"dec_{name}"] for name in ("w_ih", "w_hh", "b_ih", "b_hh")]

    def spell(self, word):
        a = self.arrays
        h = np.zeros((1, a["enc_w_hh"].shape[1]), np.float32)
        for letter in letters(word):
            h = _gru(self.encoder, a["enc_emb"][[letter]], h)
        sounds, sound = [], BEGIN
        while len(sounds) < MOST:
            h = _gru(self.decoder, a["dec_emb"][[sound]], h)
            sound = int((h @ a["fc_w"].T + a["fc_b"]).argmax())
            if sound == END:
                break
            sounds.append(sound)
        return sounds


class G2p:
    """The same as two networks."""

    def __init__(self, arrays, **options):
        self.encoder = runtime.Network([runtime.Input("letters", None)], self._gru("enc", "letters", arrays, options), [])
        decoder = self._gru("dec", "sounds", arrays, options)
        decoder.append(runtime.Dense("scores", ["gru"], arrays["fc_w"], arrays["fc_b"], **options))
        self.decoder = runtime.Network([runtime.Input("sounds", None)], decoder)
        self.by_letter, self.by_sound = self.encoder.stream(), self.decoder.stream()

    def _gru(self, side, given, arrays, options):
        names = {"weight_ih_l0": "w_ih", "weight_hh_l0": "w_hh", "bias_ih_l0": "b_ih", "bias_hh_l0": "b_hh"}
        size = arrays[f"{side}_w_hh"].shape[1]
        network = anyrnn.Recurrent("gru", arrays[f"{side}_emb"].shape[1], size).network
        parameters = {ours: arrays[f"{side}_{theirs}"] for ours, theirs in names.items()}
        embedding = runtime.Embedding("embedding", [given], arrays[f"{side}_emb"])
        return [embedding, runtime.Recurrent("gru", ["embedding"], network, parameters, **options)]

    def spell(self, word):
        """One word, step after step."""
        self.by_letter.reset()
        for letter in letters(word):
            self.by_letter.step(np.array([letter]))
        self.by_sound.states["gru"]["h"][...] = self.by_letter.states["gru"]["h"]
        sounds, sound = [], BEGIN
        while len(sounds) < MOST:
            sound = int(self.by_sound.step(np.array([sound])).argmax())
            if sound == END:
                break
            sounds.append(sound)
        return sounds

    def spell_all(self, many):
        """Words of all lengths in one batch."""
        spelled = [letters(word) for word in many]
        lengths = np.array([len(word) for word in spelled])
        given = np.zeros((lengths.max(), len(many)), np.int64)
        for n, word in enumerate(spelled):
            given[: len(word), n] = word
        _, state = self.encoder.run(given, lengths=lengths)
        going, sound = np.arange(len(many)), np.full(len(many), BEGIN)
        sounds = [[] for _ in many]
        for _ in range(MOST):
            scores, state = self.decoder.step(sound, state)
            sound = scores.argmax(-1)
            goes_on = sound != END
            going, sound, state = going[goes_on], sound[goes_on], {"gru": state["gru"].index(goes_on)}
            for n, made in zip(going.tolist(), sound.tolist(), strict=True):
                sounds[n].append(made)
            if not len(going):
                break
        return sounds
