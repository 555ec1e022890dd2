"""What holds for every test: hypothesis draws without a deadline of its own, since tests share the machine's cores."""

import os

from hypothesis import settings

settings.register_profile("tocsin", deadline=None, print_blob=True)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tocsin"))
