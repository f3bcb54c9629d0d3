"""Counts words, with neither Spark nor Java: the program of the README."""

from tidegate import StreamExecutionEnvironment

env = StreamExecutionEnvironment.local()
words = env.from_collection(["to", "be", "or", "not", "to", "be"])
pairs = words.map(lambda word: (word, 1))
counts = pairs.key_by(lambda pair: pair[0]).reduce(lambda one, two: (one[0], one[1] + two[1]))
with counts.execute_and_collect("word count") as results:
    for word, count in results:
        print(word, count)
