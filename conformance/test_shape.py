from mutcache_conformance.suite.shape import *
