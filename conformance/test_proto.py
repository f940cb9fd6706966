from mutcache_conformance.suite.proto import *
