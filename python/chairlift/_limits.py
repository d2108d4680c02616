"""Bounds on the memory of processes that read models' files and clients' texts."""

import resource


def limit_memory(more):
    """Has allocations fail from now on that need more than `more` bytes beside what the process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = size + more if hard == resource.RLIM_INFINITY else min(size + more, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
