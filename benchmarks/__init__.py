"""Measurements that anyone can rerun: `make bench`, or `python -m benchmarks.NAME --help`."""
