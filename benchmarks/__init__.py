"""`python -m benchmarks`: how fast anyrnn is, against the other libraries and against the machine.

* Times are compared within one run only: one process, the same threads, the same inputs. A block is a pause of 30 ms, in which
  the other libraries' threads fall asleep, two calls to warm up (quick ones for ten milliseconds) and at least six timed calls
  of one system; then the next system's block follows, round and round. Medians are reported, and the 10th and 90th percentile.
* Before a time is reported, results and gradients are compared with the peers'. A row that differs is refused.
* The same run measures a large matrix product and a read of a large array: what the machine allows.
* Flops forward are 2 x samples x steps x elements of the cell's matrices, which is 2*G*H*(D+H)*N*T for G gates; a training
  step, which also makes the gradients of the inputs and the parameters, counts three times that.

Other programs: `benchmarks.around` (a language model's training step), `.digits` (the demo's, whole), `.options` (what options of
layers cost), `.int8`, `.jax_layers`, `.gpu` (what `make gpu` runs). Peers are in `peers.py`, rows in `suite.py`, lines in
`targets.py`.

`--prove` shows that systems do not disturb each other: each one's figure is within 10 % of its figure alone in a fresh process.
"""
