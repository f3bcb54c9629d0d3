package tidegate.peer;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.LookupFunction;

/** The connector "nexmark-side": q13's fixed table of 10,000 rows (i, 'i'), held by each subtask. */
public class NexmarkSide implements DynamicTableSourceFactory {
    private static final int ROWS = 10_000;

    @Override
    public String factoryIdentifier() { return "nexmark-side"; }

    @Override
    public Set<ConfigOption<?>> requiredOptions() { return Set.of(); }

    @Override
    public Set<ConfigOption<?>> optionalOptions() { return Set.of(); }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) { return new Side(); }

    private static final class Side implements LookupTableSource {
        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            return LookupFunctionProvider.of(new Lookup());
        }

        @Override
        public DynamicTableSource copy() { return new Side(); }

        @Override
        public String asSummaryString() { return "Nexmark side input"; }
    }

    public static final class Lookup extends LookupFunction {
        private transient List<List<RowData>> table;

        @Override
        public void open(FunctionContext context) {
            table = new ArrayList<>(ROWS);
            for (long i = 0; i < ROWS; i++) {
                table.add(List.of(GenericRowData.of(i, StringData.fromString(Long.toString(i)))));
            }
        }

        @Override
        public Collection<RowData> lookup(RowData key) {
            long i = key.getLong(0);
            return i >= 0 && i < ROWS ? table.get((int) i) : List.of();
        }
    }
}
