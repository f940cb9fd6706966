from mutcache_conformance.suite.plan import *
