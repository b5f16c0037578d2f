"""Tests that need something that not every version of Spark has."""

import pytest

from phalanx.spark import features


def needs(feature):
    """Marks a test: where Spark lacks the feature, it is shown as skipped, with the reason."""
    reason = features.lacking(feature)
    return pytest.mark.skipif(reason is not None, reason=reason or "")
