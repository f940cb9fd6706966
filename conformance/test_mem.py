from mutcache_conformance.suite.mem import *
