import pytest

import remat


@pytest.fixture
def device():
    """A device of its own, within a budget, that is the default one during the test."""
    before = remat.get_default_device()
    own = remat.Device(budget="64MiB", threads=2)
    remat.set_default_device(own)
    yield own
    remat.set_default_device(before)
