"""The demo: a tour of 15 seconds (`make demo`), and tables of every kernel (`make demo-all`)."""
