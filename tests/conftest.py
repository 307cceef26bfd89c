"""Hypothesis profiles: HYPOTHESIS_PROFILE picks one, `dev` if unset."""

import os

from hypothesis import settings

for _name, _max_examples in (("dev", 25), ("ci", 200), ("nightly", 2000)):
    settings.register_profile(_name, max_examples=_max_examples, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
