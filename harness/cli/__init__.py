"""Tasks of `./inv`, and what they share; tasks.py is the table of contents."""
