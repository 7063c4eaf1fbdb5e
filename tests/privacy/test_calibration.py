"""Noise calibration: targets that need almost no noise."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpolicy.privacy.calibration import calibrate_noise


@pytest.mark.parametrize(("epsilon", "delta"), [("0.01", "0.01"), ("0.001", "0.5")])
def test_a_target_that_delta_alone_meets_can_be_calibrated(epsilon: str, delta: str) -> None:
    noise, reached = calibrate_noise("gaussian", {}, Fraction(epsilon), Fraction(delta))
    assert noise > 0 and reached <= float(epsilon)
