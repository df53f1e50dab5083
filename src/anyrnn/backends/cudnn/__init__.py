"""cuDNN's recurrent networks, called through torch, for graphs that equal what they compute."""
