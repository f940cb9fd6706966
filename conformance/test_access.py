from mutcache_conformance.suite.access import *
