"""Memory limits for processes that read models' files and clients' text."""

import resource


def limit_memory(more):
    """Makes allocations fail when the process needs `more` bytes in addition to what it has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = size + more if hard == resource.RLIM_INFINITY else min(size + more, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
