"""From the graph of one step to a plan: simplify, adjoint, hoist and sink, stage, save, plan."""
