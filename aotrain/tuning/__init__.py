"""A model and this machine in, better plans for its kernels' contractions in a database out.

database: what was tried, and what won; a file a device. measure: two schedules of a kernel in, how
much faster one is out. search: which kernel and which plan to try next. tune: the whole of it.
"""
