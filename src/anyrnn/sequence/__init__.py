"""Layers, directions, lengths and states, once for every front-end. Nothing here touches an array's numbers."""
