"""Limits the memory of processes that read model files and clients' text inputs."""

import resource


def limit_memory(more):
    """Limits the process to `more` bytes in addition to its current memory. Allocations beyond that fail."""
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = size + more if hard == resource.RLIM_INFINITY else min(size + more, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
