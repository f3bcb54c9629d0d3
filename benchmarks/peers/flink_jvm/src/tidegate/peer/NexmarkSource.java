package tidegate.peer;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.types.DataType;
import org.apache.flink.types.Row;

/** The events as a source: rows for PyFlink, the planner's own rows for SQL. */
public final class NexmarkSource {
    private NexmarkSource() {}

    /** Columns of the three records, in the order of their fields. */
    static final String[][] NAMES = {
        {"id", "name", "emailAddress", "creditCard", "city", "state", "dateTime", "extra"},
        {"id", "itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller", "category", "extra"},
        {"auction", "bidder", "price", "channel", "url", "dateTime", "extra"}};
    /** l: a number, s: a text, t: a time. */
    static final String[] KINDS = {"lsssssts", "lssllttlls", "lllssts"};

    /** Field by field: (event type, person, auction, bid), of which one is there. */
    static DataType dataType() {
        DataTypes.Field[] fields = new DataTypes.Field[4];
        fields[0] = DataTypes.FIELD("event_type", DataTypes.INT());
        String[] names = {"person", "auction", "bid"};
        for (int kind = 0; kind < 3; kind++) {
            DataTypes.Field[] inner = new DataTypes.Field[NAMES[kind].length];
            for (int i = 0; i < inner.length; i++) {
                char c = KINDS[kind].charAt(i);
                inner[i] = DataTypes.FIELD(NAMES[kind][i],
                        c == 'l' ? DataTypes.BIGINT() : c == 's' ? DataTypes.STRING() : DataTypes.TIMESTAMP(3));
            }
            fields[1 + kind] = DataTypes.FIELD(names[kind], DataTypes.ROW(inner));
        }
        return DataTypes.ROW(fields);
    }

    public static TypeInformation<Row> rowType() {
        TypeInformation<?>[] types = new TypeInformation<?>[4];
        types[0] = Types.INT;
        for (int kind = 0; kind < 3; kind++) {
            TypeInformation<?>[] inner = new TypeInformation<?>[NAMES[kind].length];
            for (int i = 0; i < inner.length; i++) {
                inner[i] = KINDS[kind].charAt(i) == 's' ? Types.STRING : Types.LONG;
            }
            types[1 + kind] = Types.ROW_NAMED(NAMES[kind], inner);
        }
        return Types.ROW_NAMED(new String[] {"event_type", "person", "auction", "bid"}, types);
    }

    /** Times are milliseconds. */
    public static DataGeneratorSource<Row> rows(long count, int readers, long rate, long baseMs, long warm) {
        GeneratorFunction<Long, Row> made = new Made<Row>(new NexmarkGenerator(rate, baseMs), count, readers, warm) {
            @Override
            Row event(int kind, Object[] fields) {
                Row event = new Row(4);
                event.setField(0, kind);
                event.setField(1 + kind, Row.of(fields));
                return event;
            }
        };
        return new DataGeneratorSource<>(made, count, RateLimiterStrategy.noOp(), rowType());
    }

    static DataGeneratorSource<RowData> rowData(
            long count, int readers, long rate, long baseMs, long warm, TypeInformation<RowData> type) {
        GeneratorFunction<Long, RowData> made =
                new Made<RowData>(new NexmarkGenerator(rate, baseMs), count, readers, warm) {
            @Override
            RowData event(int kind, Object[] fields) {
                String kinds = KINDS[kind];
                for (int i = 0; i < fields.length; i++) {
                    char c = kinds.charAt(i);
                    if (c == 's') fields[i] = StringData.fromString((String) fields[i]);
                    else if (c == 't') fields[i] = TimestampData.fromEpochMillis((Long) fields[i]);
                }
                GenericRowData event = new GenericRowData(4);
                event.setField(0, kind);
                event.setField(1 + kind, GenericRowData.of(fields));
                return event;
            }
        };
        return new DataGeneratorSource<>(made, count, RateLimiterStrategy.noOp(), type);
    }

    /** The source's numbers come in one stretch a reader; readers take the events in turn. */
    private abstract static class Made<T> implements GeneratorFunction<Long, T> {
        private final NexmarkGenerator generator;
        private final long share;
        private final int readers;
        private final long warm;
        private long seen;
        private transient long[] slot;

        Made(NexmarkGenerator generator, long count, int readers, long warm) {
            if (count % readers != 0) throw new IllegalArgumentException(count + " events for " + readers + " readers");
            this.generator = generator;
            this.share = count / readers;
            this.readers = readers;
            this.warm = warm;
        }

        abstract T event(int kind, Object[] fields);

        @Override
        public void open(SourceReaderContext context) {
            slot = new long[2];
            Stats.SOURCE.put(context.getIndexOfSubtask(), slot);
        }

        @Override
        public T map(Long x) {
            if (seen++ == warm) {
                slot[1] = System.nanoTime();
                Stats.warmed();
            }
            if (seen > warm) slot[0]++;
            long number = x % share * readers + x / share;
            return event(NexmarkGenerator.kind(number), generator.record(number));
        }
    }
}
