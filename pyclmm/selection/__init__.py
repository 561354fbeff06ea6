"""Which kernel computes a product: the choice, tables of measured choices, and the user's store. Pure.

Others import: schema, select, store, tables.
"""
