"""Nexmark's queries by records, written once against PyFlink's names.

PyFlink runs this package as it is; Tidegate runs it after `tidegate.pyflink.install()`. An event is
(event type, person, auction, bid), of which one is there; it and its records are read by position
only, so that they may be rows or tuples. Each query takes the stream of events and its settings,
and gives a stream of tuples, q10 one of texts.
"""
