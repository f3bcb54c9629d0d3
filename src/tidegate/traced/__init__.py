"""Pure functions of rows, called once with symbols and evaluated a batch at a time.

``trace`` gives the expressions of a function, or says why it has none; ``evaluate`` computes them
over columns. Where a result could differ from what the function itself gives, evaluation raises
`Doubt`, and the batch goes through the function: values, errors and tracebacks are Python's own.
"""
