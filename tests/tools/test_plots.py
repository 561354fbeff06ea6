"""One colour and one marker a kernel, in every picture."""

from collections import Counter

from pyclmm import KERNELS
from pyclmm.tools.plots import KERNEL_STYLES

LIGHT, DARK = "#ffffff", "#131416"


def luminance(colour):
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_kernel_has_a_style_of_its_own():
    assert {kernel.name for kernel in KERNELS} <= set(KERNEL_STYLES)
    assert len(set(KERNEL_STYLES.values())) == len(KERNEL_STYLES)
    assert len({colour for colour, _ in KERNEL_STYLES.values()}) == len(KERNEL_STYLES)
    assert max(Counter(marker for _, marker in KERNEL_STYLES.values()).values()) <= 3


def test_colours_are_read_on_light_and_dark_pages():
    weak = {n: c for n, (c, _) in KERNEL_STYLES.items() if min(contrast(c, LIGHT), contrast(c, DARK)) < 3}
    assert not weak
