import argparse
from pathlib import Path

import pytest

from anyrnn.train.errors import UsageError
from anyrnn.train.options import Options, add_arguments, from_arguments


def parse(*arguments: str) -> Options:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return from_arguments(parser.parse_args(arguments))


def test_defaults_of_each_data_set() -> None:
    digits = parse("digits")
    assert (digits.cell, digits.hidden, digits.batch, digits.steps, digits.learning_rate) == ("lstm", 128, 64, 600, 0.005)
    mnist = parse("mnist", "--data", "folder")
    assert (mnist.cell, mnist.hidden, mnist.batch, mnist.steps, mnist.learning_rate) == ("lstm", 256, 200, 1000, 0.001)
    for options in (digits, mnist):
        assert (options.layers, options.bidirectional, options.head, options.seed) == (1, False, "all", 0)
        assert (options.threads, options.layers_from) == (None, "anyrnn")


def test_every_argument() -> None:
    text = (
        "mnist --cell gru --hidden 3 --layers 2 --bidirectional --batch 5 --steps 7 --lr 0.5 --head last --seed 11 --threads 2 "
        "--data there --output here --layers-from torch --save-every 9 --resume --json"
    )
    assert parse(*text.split()) == Options(
        dataset="mnist",
        cell="gru",
        hidden=3,
        layers=2,
        bidirectional=True,
        batch=5,
        steps=7,
        learning_rate=0.5,
        head="last",
        seed=11,
        threads=2,
        data=Path("there"),
        output=Path("here"),
        layers_from="torch",
        save_every=9,
        resume=True,
    )


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["digits"], "runs/digits-lstm"),
        (["digits", "--cell", "some/file.py:mine"], "runs/digits-mine"),
        (["digits", "--cell", "normalised(some/file.py:mine)"], "runs/digits-normalised-some-file-py-mine"),
        (["mnist", "--data", ".", "--cell", "gru", "--layers-from", "torch"], "runs/mnist-gru-torch"),
    ],
)
def test_default_output(arguments: list[str], folder: str) -> None:
    assert parse(*arguments).output == Path(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("letters", "argument dataset: invalid choice: 'letters'"),
        ("", "the following arguments are required: dataset"),
        ("digits --hidden 0", "argument --hidden/--hidden-size: expected a whole number from 1 to 2147483647, got 0"),
        ("digits --layers -1", "argument --layers: expected a whole number from 1 to 2147483647, got -1"),
        ("digits --batch many", "argument --batch: expected a whole number, got 'many'"),
        ("digits --steps 1.5", "argument --steps: expected a whole number, got '1.5'"),
        ("digits --threads 0", "argument --threads: expected a whole number from 1"),
        ("digits --seed -1", "argument --seed: expected a whole number from 0 to 9223372036854775807, got -1"),
        ("digits --lr 0", "argument --lr/--learning-rate: expected a number above 0, up to 1e+30, got 0"),
        ("digits --lr nan", "argument --lr/--learning-rate: expected a number above 0, up to 1e+30, got nan"),
        ("digits --lr 1e300", "argument --lr/--learning-rate: expected a number above 0, up to 1e+30, got 1e300"),
        ("digits --lr fast", "argument --lr/--learning-rate: expected a number, got 'fast'"),
        ("digits --head first", "argument --head: invalid choice: 'first'"),
        ("digits --layers-from keras", "argument --layers-from: invalid choice: 'keras'"),
    ],
)
def test_wrong_arguments(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(*arguments.split())
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mnist"], "mnist needs --data DIR: the folder with train-images-idx3-ubyte, train-labels-idx1-ubyte"),
        (["vowels"], "vowels needs --data DIR: the folder with JapaneseVowels_TRAIN.ts and JapaneseVowels_TEST.ts"),
        (["vowels", "--data", ".", "--head", "all"], "--head all needs sequences of one length, which vowels have not"),
        (["digits", "--data", "."], "--data is for mnist and vowels: the digits come with scikit-learn"),
        (["digits", "--cell", ""], "--cell is empty; give a built-in cell's name or my_file.py:my_cell"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(*arguments)
    assert message in str(raised.value)


def test_vowels_are_read_in_both_directions_unless_asked_otherwise() -> None:
    assert parse("vowels", "--data", ".").bidirectional
    assert not parse("vowels", "--data", ".", "--no-bidirectional").bidirectional
    assert parse("vowels", "--data", ".").head == "last"
