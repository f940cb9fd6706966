from mutcache_conformance.suite.flow import *  # noqa: F403
