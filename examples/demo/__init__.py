"""The demo: a tour of 30 lines (`make demo`), and tables of every kernel (`make demo-all`)."""
