"""opsgen: generates, measures, certifies and releases operator-fusion tasks.

Importing it is cheap: nothing heavier than the standard library is loaded
until a room is used.
"""

__version__ = "0.1.0"
