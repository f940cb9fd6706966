"""The floating-point types of page codecs, rounded by hand: no NumPy, no ml_dtypes, no cast of the machine.

Values are Python floats, which hold every number of these types exactly; computing is done with fractions, so that each
operation is rounded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final


@dataclass(frozen=True, slots=True)
class FloatType:
    """A binary floating-point type.

    Attributes:
        exponent: bits of the exponent.
        mantissa: bits of the mantissa.
        bias: of the exponent; the smallest normal number is ``2**(1 - bias)``.
        largest: the largest finite number.
        nan: the code of its NaN, positive; None if it has none.
        has_infinity: whether what is too large becomes infinite; if not, nothing but saturation is defined here.
    """

    exponent: int
    mantissa: int
    bias: int
    largest: float
    nan: int | None
    has_infinity: bool

    @property
    def nbytes(self) -> int:
        """Bytes of one number; types narrower than a byte share one."""
        return -(-(1 + self.exponent + self.mantissa) // 8)

    def spacing(self, value: Fraction | float) -> Fraction:
        """The distance of the numbers of the type around a finite ``value``: one unit in the last place of it."""
        return Fraction(2) ** (max(_exponent_of(value), 1 - self.bias) - self.mantissa)

    def rounded(self, value: Fraction | float) -> float:
        """The nearest number of the type, of two as near the even one; NaN and infinities stay."""
        if isinstance(value, float):
            if not math.isfinite(value) or value == 0:
                return value
            # Scaling by a power of two is exact, and round() goes to the even one of two.
            last = max(math.frexp(value)[1] - 1, 1 - self.bias) - self.mantissa
            result = math.ldexp(round(math.ldexp(value, -last)), last)
            return math.copysign(math.inf if abs(result) > self.largest else result, value)
        quantum = self.spacing(value)
        magnitude = round(abs(Fraction(value)) / quantum) * quantum
        if magnitude > Fraction(self.largest):
            return math.copysign(math.inf, value)
        return math.copysign(float(magnitude), value)

    def saturated(self, value: Fraction | float) -> float:
        """As ``rounded``, but what is too large becomes the largest finite number; NaN stays."""
        result = self.rounded(value)
        return math.copysign(self.largest, result) if math.isinf(result) else result

    def encode(self, value: float) -> int:
        """The bits of a number of the type."""
        sign = math.copysign(1, value) < 0
        if math.isnan(value):
            if self.nan is None:
                raise ValueError("the type has no NaN")
            return self.nan
        if math.isinf(value):
            code = ((1 << self.exponent) - 1) << self.mantissa
        else:
            exponent = max(_exponent_of(value), 1 - self.bias) if value else 1 - self.bias
            units = int(math.ldexp(abs(value), self.mantissa - exponent))
            code = units + ((exponent + self.bias - 1) << self.mantissa)
        return code | sign << (self.exponent + self.mantissa)

    def decode(self, code: int) -> float:
        """The number that ``code`` stands for."""
        sign = -1.0 if code >> (self.exponent + self.mantissa) else 1.0
        field = code >> self.mantissa & ((1 << self.exponent) - 1)
        units = code & ((1 << self.mantissa) - 1)
        if self.has_infinity and field == (1 << self.exponent) - 1:
            return math.nan if units else sign * math.inf
        if self.nan is not None and code & ((1 << (self.exponent + self.mantissa)) - 1) == self.nan:
            return math.nan
        if field:
            units += 1 << self.mantissa
        return sign * math.ldexp(units, max(field, 1) - self.bias - self.mantissa)


def _exponent_of(value: Fraction | float) -> int:
    """The exponent of the largest power of two that is not above ``|value|``; that of zero is very low."""
    if value == 0:
        return -(1 << 20)
    if isinstance(value, float):
        return math.frexp(value)[1] - 1
    top, bottom = abs(value.numerator), value.denominator
    guess = top.bit_length() - bottom.bit_length()
    return guess if Fraction(top, bottom) >= Fraction(2) ** guess else guess - 1


FLOAT: Final = FloatType(8, 23, 127, math.ldexp(2**24 - 1, 104), 0x7FC00000, True)
FLOAT16: Final = FloatType(5, 10, 15, 65504.0, 0x7E00, True)
BFLOAT16: Final = FloatType(8, 7, 127, math.ldexp(255, 120), 0x7FC0, True)
E4M3: Final = FloatType(4, 3, 7, 448.0, 0x7F, False)
E2M1: Final = FloatType(2, 1, 1, 6.0, None, False)

#: The bias of the exponents that an E8M0 scale holds, and its NaN.
E8M0_BIAS: Final = 127
E8M0_NAN: Final = 0xFF


# Arithmetic of float32: exact, then rounded once.


def product(left: float, right: float) -> float:
    """``left * right``; a Python float holds the exact product of two numbers of float32."""
    return FLOAT.rounded(left * right)


def total(left: float, right: float) -> float:
    """``left + right``."""
    if math.isfinite(left) and math.isfinite(right) and left + right != 0:
        return FLOAT.rounded(Fraction(left) + Fraction(right))
    return left + right


def quotient(left: float, right: float) -> float:
    """``left / right``, which is not zero; infinite if too large."""
    if not math.isfinite(left):
        return left
    return FLOAT.rounded(Fraction(left) / Fraction(right)) if left else left / right
