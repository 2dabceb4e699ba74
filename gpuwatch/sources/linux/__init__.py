"""The host, its processes and cgroups, from ``/proc`` and ``/sys``."""
