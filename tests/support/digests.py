"""Writes pyclmm/checks/fixed_products.json: ``python -m tests.support.digests``.

A digest that changes breaks the promise of reproducible products, so this is for new products only.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyclmm.checks import fixed_products


def main() -> None:
    """Compute every digest on the host and write the file."""
    found = {product.name: fixed_products.digest(product.on_host()) for product in fixed_products.PRODUCTS}
    path = Path(fixed_products.__file__).with_name(fixed_products.FILE)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
