from mutcache_conformance.suite.dense import *
