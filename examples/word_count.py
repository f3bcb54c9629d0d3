"""Word count: a pair for each word, keyed by the word, and its rolling sum, printed.

Each word gives a line with its count so far. As a batch there is one line a word, the last:
`tidegate run -D execution.runtime-mode=BATCH examples/word_count.py`. With `-p 4` four subtasks
share the words; what subtasks print on Spark is in the logs of its workers.
"""

from tidegate import StreamExecutionEnvironment, Types

LINES = ["to be or not to be", "to do"]
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def counts(lines):
    """lines: a stream of texts."""
    pairs = lines.flat_map(lambda line: [(word, 1) for word in line.split()], PAIR)
    return pairs.key_by(lambda pair: pair[0], Types.STRING()).sum(1).uid("counts")


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    counts(env.from_collection(LINES).uid("lines")).print()
    env.execute("word count")


if __name__ == "__main__":
    main()
