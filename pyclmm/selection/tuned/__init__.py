"""Tuned tables: measured data only, one JSON file a device."""
