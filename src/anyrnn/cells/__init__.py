"""The cells that come with the package, each in a few lines of equations."""

from __future__ import annotations

from typing import Any

from anyrnn.cells import wrappers as wrappers
from anyrnn.cells.antisymmetric import antisymmetric_rnn as antisymmetric_rnn
from anyrnn.cells.antisymmetric import gated_antisymmetric_rnn as gated_antisymmetric_rnn
from anyrnn.cells.atr import atr as atr
from anyrnn.cells.augru import augru as augru
from anyrnn.cells.brc import brc as brc
from anyrnn.cells.brc import nbrc as nbrc
from anyrnn.cells.cfn import cfn as cfn
from anyrnn.cells.clockwork import clockwork as clockwork
from anyrnn.cells.cornn import cornn as cornn
from anyrnn.cells.cornn import unicornn as unicornn
from anyrnn.cells.ctrnn import ctrnn as ctrnn
from anyrnn.cells.echo_state import echo_state as echo_state
from anyrnn.cells.elstm import elstm as elstm
from anyrnn.cells.ema import ema as ema
from anyrnn.cells.fastrnn import fastgrnn as fastgrnn
from anyrnn.cells.fastrnn import fastrnn as fastrnn
from anyrnn.cells.gateloop import gateloop as gateloop
from anyrnn.cells.gilr_lstm import gilr_lstm as gilr_lstm
from anyrnn.cells.gru import gru as gru
from anyrnn.cells.gru import gru_before as gru_before
from anyrnn.cells.gru_block import gru_block as gru_block
from anyrnn.cells.gru_decay import gru_decay as gru_decay
from anyrnn.cells.gru_layernorm import gru_layernorm as gru_layernorm
from anyrnn.cells.gru_simplified import gru1 as gru1
from anyrnn.cells.gru_simplified import gru2 as gru2
from anyrnn.cells.gru_simplified import gru3 as gru3
from anyrnn.cells.hgrn import hgrn as hgrn
from anyrnn.cells.indrnn import indrnn as indrnn
from anyrnn.cells.indrnn_layernorm import indrnn_layernorm as indrnn_layernorm
from anyrnn.cells.intersection_rnn import intersection_rnn as intersection_rnn
from anyrnn.cells.janet import janet as janet
from anyrnn.cells.lem import lem as lem
from anyrnn.cells.lightru import lightru as lightru
from anyrnn.cells.ligru import ligru as ligru
from anyrnn.cells.lipschitz_rnn import lipschitz_rnn as lipschitz_rnn
from anyrnn.cells.liquid import cfc as cfc
from anyrnn.cells.liquid import ltc as ltc
from anyrnn.cells.lmu import lmu as lmu
from anyrnn.cells.lru import lru as lru
from anyrnn.cells.lstm import lstm as lstm
from anyrnn.cells.lstm import lstm_coupled as lstm_coupled
from anyrnn.cells.lstm import lstm_peephole as lstm_peephole
from anyrnn.cells.lstm import lstm_projected as lstm_projected
from anyrnn.cells.lstm_heads import lstm_heads as lstm_heads
from anyrnn.cells.lstm_layernorm import lstm_layernorm as lstm_layernorm
from anyrnn.cells.lstm_layernorm_stacked import lstm_layernorm_stacked as lstm_layernorm_stacked
from anyrnn.cells.lstm_memory_controller import lstm_memory_controller as lstm_memory_controller
from anyrnn.cells.lstm_mogrifier import lstm_mogrifier as lstm_mogrifier
from anyrnn.cells.lstm_multiplicative import lstm_multiplicative as lstm_multiplicative
from anyrnn.cells.lstm_original import lstm_original as lstm_original
from anyrnn.cells.lstm_phased import lstm_phased as lstm_phased
from anyrnn.cells.lstm_phased import lstm_phased_timed as lstm_phased_timed
from anyrnn.cells.lstm_residual import lstm_residual as lstm_residual
from anyrnn.cells.lstm_slim import lstm_slim1 as lstm_slim1
from anyrnn.cells.lstm_slim import lstm_slim2 as lstm_slim2
from anyrnn.cells.lstm_slim import lstm_slim3 as lstm_slim3
from anyrnn.cells.lstm_working_memory import lstm_working_memory as lstm_working_memory
from anyrnn.cells.mgu import mgu as mgu
from anyrnn.cells.mgu import mgu1 as mgu1
from anyrnn.cells.mgu import mgu2 as mgu2
from anyrnn.cells.mgu import mgu3 as mgu3
from anyrnn.cells.minimal_rnn import minimal_rnn as minimal_rnn
from anyrnn.cells.minrnn import mingru as mingru
from anyrnn.cells.minrnn import minlstm as minlstm
from anyrnn.cells.miru import miru1 as miru1
from anyrnn.cells.miru import miru2 as miru2
from anyrnn.cells.mut import mut1 as mut1
from anyrnn.cells.mut import mut2 as mut2
from anyrnn.cells.mut import mut3 as mut3
from anyrnn.cells.nas import nas as nas
from anyrnn.cells.orthogonal_rnn import orthogonal_rnn as orthogonal_rnn
from anyrnn.cells.plrnn import plrnn as plrnn
from anyrnn.cells.qrnn import qrnn_f as qrnn_f
from anyrnn.cells.qrnn import qrnn_fo as qrnn_fo
from anyrnn.cells.qrnn import qrnn_ifo as qrnn_ifo
from anyrnn.cells.ran import ran as ran
from anyrnn.cells.rg_lru import rg_lru as rg_lru
from anyrnn.cells.rhn import rhn as rhn
from anyrnn.cells.rnn import rnn_relu as rnn_relu
from anyrnn.cells.rnn import rnn_tanh as rnn_tanh
from anyrnn.cells.rnn_identity import rnn_identity as rnn_identity
from anyrnn.cells.rnn_low_rank import rnn_low_rank as rnn_low_rank
from anyrnn.cells.rnn_multiplicative import rnn_multiplicative as rnn_multiplicative
from anyrnn.cells.rwkv4 import rwkv4 as rwkv4
from anyrnn.cells.scrn import scrn as scrn
from anyrnn.cells.sgrn import sgrn as sgrn
from anyrnn.cells.sgu import dsgu as dsgu
from anyrnn.cells.sgu import sgu as sgu
from anyrnn.cells.slstm import slstm as slstm
from anyrnn.cells.srnn import srnn as srnn
from anyrnn.cells.sru import sru as sru
from anyrnn.cells.star import star as star
from anyrnn.cells.strongly_typed import tgru as tgru
from anyrnn.cells.strongly_typed import tlstm as tlstm
from anyrnn.cells.strongly_typed import trnn as trnn
from anyrnn.cells.tau_gru import tau_gru as tau_gru
from anyrnn.cells.ugrnn import ugrnn as ugrnn
from anyrnn.trace import Cell


def names() -> list[str]:
    """The names of the built-in cells."""
    return sorted(name for name, value in globals().items() if isinstance(value, Cell))


def load(spec: Any) -> Cell:
    """A built-in cell by its name, one in wrappers (`residual(lstm)`, see `anyrnn.cells.wrappers`), one with other defaults
    (`ctrnn(dt=0.5)`, see `Cell.with_defaults`), or `my_file.py:my_cell`.

    A Cell is given back as it is.

    Raises: ValueError for an unknown name and for a file that cannot be run, FileNotFoundError for a missing file, TypeError for
    what is neither a Cell nor text.
    """
    from anyrnn.cells import loading

    return loading.load(spec, {name: globals()[name] for name in names()})
