"""What cuDNN is held against runs in Triton's interpreter."""

from tests.backends.triton.conftest import interpreted

__all__ = ["interpreted"]
