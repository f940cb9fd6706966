from mutcache_conformance.suite.alias import *
