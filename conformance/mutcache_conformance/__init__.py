"""Conformance suite for runtimes of mutable execution caches: harness, cases, reports."""
