"""The doors to the backends: the only files that import one."""
