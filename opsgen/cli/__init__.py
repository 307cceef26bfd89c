"""The command line: thin, so that whatever it does a script can do too.

`app` puts the commands together and turns a user's mistake into one line and
exit code 2; `recipes` holds the commands that take a recipe, `looking` those
that show something, `auditing` the audit of foreign code, `calibrating` what
measures a device, `display` what results look like. Results go to standard
output, progress and errors to standard error. The only room that prints.
"""

from opsgen.cli.app import main

__all__ = ["main"]
