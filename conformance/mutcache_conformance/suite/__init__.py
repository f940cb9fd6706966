"""The conformance suite, one module per area; ``pytest conformance`` collects them through one-line files."""
