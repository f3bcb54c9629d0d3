package tidegate.peer;

import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** Counts results and discards them; notes when it has seen the end of the input. */
public class NexmarkSink<T> implements Sink<T> {
    @Override
    public SinkWriter<T> createWriter(WriterInitContext context) { return new Writer<>(); }

    private static final class Writer<T> implements SinkWriter<T> {
        private long n;

        @Override
        public void write(T result, Context context) {
            if (n++ == 0) {
                Stats.FIRST.accumulateAndGet(System.nanoTime(), Math::min);
                Stats.FIRST_WALL_MS.accumulateAndGet(System.currentTimeMillis(), Math::min);
            }
        }

        @Override
        public void flush(boolean endOfInput) {
            if (endOfInput) {
                Stats.LAST.accumulateAndGet(System.nanoTime(), Math::max);
                Stats.ended();
            }
        }

        @Override
        public void close() { Stats.OUT.addAndGet(n); }
    }
}
