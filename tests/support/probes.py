"""Made-up probes of a device's rates, in place of those that measure."""

from pyclmm.kernels.rates import MEANINGS, Rates

RATES = Rates(1e-6, 1e-9, 1e-7, 20e9, 80e9, 1e6, 1e11, 1e12, 1e12, 1e12)


class Probes:
    """Each measurement finds the next of ``found``, and then RATES.

    ``refusals``: what it says of rates that it does not keep; ``pressed``: Ctrl-C comes at once.
    """

    def __init__(self):
        self.found, self.refusals, self.calls, self.pressed = [], [], 0, False

    def measure(self, device, on_stage, on_refusal=None):
        self.calls += 1
        rates = self.found.pop(0) if self.found else RATES
        for said in self.refusals:
            on_refusal(said)
        for names in ([*MEANINGS][:4], [*MEANINGS][4:]):
            if self.pressed:
                raise KeyboardInterrupt
            yield {name: getattr(rates, name) for name in names}
