from mutcache_conformance.suite.bind import *
