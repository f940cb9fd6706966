"""The ``mutcache`` command and the tools of a checkout."""
