from mutcache_conformance.suite.flow import *
