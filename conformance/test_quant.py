from mutcache_conformance.suite.quant import *
