"""Who turns a Jetson's fan: the stock `quiet` curve, until somebody writes `pwm1`."""

from __future__ import annotations

import errno

from boardbench.virtual.parts import ZonePolicy
from boardbench.virtual.tree import refuse, whole_number

# Points of the curve: junction temperature in degrees Celsius, PWM. Linear between; two steps, at 74 and at 95.
_OFF_BELOW_CELSIUS, _LINEAR_TO_CELSIUS, _LINEAR_TO_PWM = 35.0, 74.0, 187
_FULL_FROM_CELSIUS, _FULL_PWM = 95.0, 255


def quiet_pwm(junction_celsius: float) -> int:
    """The PWM (0 to 255) of the stock quiet profile."""
    if junction_celsius >= _FULL_FROM_CELSIUS:
        return _FULL_PWM
    span = (junction_celsius - _OFF_BELOW_CELSIUS) / (_LINEAR_TO_CELSIUS - _OFF_BELOW_CELSIUS)
    return round(_LINEAR_TO_PWM * min(1.0, max(0.0, span)))


class JetsonFan:
    """The fan's PWM now. A write to `pwm1` takes the fan from the curve; `step_wise` of the tj zone gives it back."""

    def __init__(self) -> None:
        self.pwm = 0
        self.by_hand = False
        self.policy = ZonePolicy("step_wise", ("user_space", "step_wise"))

    def follow(self, junction_celsius: float) -> None:
        """One look of the fan's owner at the junction temperature."""
        if not self.by_hand:
            self.pwm = quiet_pwm(junction_celsius)

    def write_pwm(self, text: str) -> None:
        """A write to `pwm1`: 0 to 255, else EINVAL."""
        value = whole_number(text)
        if value > 255:
            raise refuse(errno.EINVAL)
        self.pwm, self.by_hand = value, True

    def write_policy(self, text: str) -> None:
        """A write to the tj zone's `policy`."""
        self.policy.write(text)
        if self.policy.value == "step_wise":
            self.by_hand = False

    def reset(self) -> None:
        """Back to the owner at boot."""
        self.by_hand = False
        self.policy.reset()

    @property
    def cooling_state(self) -> int:
        """The state of the `pwm-fan` cooling device: levels 0, 88, 187, 255."""
        return sum(1 for level in (1, 88 + 1, 187 + 1) if self.pwm >= level)
