from mutcache_conformance.suite.paged import *
