"""`letgo app`: one page and a small JSON API. Nothing here imports torch before a model is asked for."""
