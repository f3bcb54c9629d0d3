package tidegate.peer;

import java.util.Set;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.SourceProvider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.types.DataType;
import org.apache.flink.types.RowKind;

/** The connector "nexmark": a table of the events, and one that counts what is written to it. */
public class NexmarkTables implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    private static final ConfigOption<Long> EVENTS = ConfigOptions.key("events").longType().defaultValue(0L);
    private static final ConfigOption<Integer> READERS = ConfigOptions.key("readers").intType().defaultValue(1);
    private static final ConfigOption<Long> RATE = ConfigOptions.key("rate").longType().defaultValue(10_000L);
    private static final ConfigOption<Long> BASE_MS = ConfigOptions.key("base-ms").longType().defaultValue(0L);
    private static final ConfigOption<Long> WARM = ConfigOptions.key("warm").longType().defaultValue(0L);

    @Override
    public String factoryIdentifier() { return "nexmark"; }

    @Override
    public Set<ConfigOption<?>> requiredOptions() { return Set.of(); }

    @Override
    public Set<ConfigOption<?>> optionalOptions() { return Set.of(EVENTS, READERS, RATE, BASE_MS, WARM); }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        helper.validate();
        return new Events(helper.getOptions(), context.getPhysicalRowDataType());
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) { return new Results(); }

    private static final class Events implements ScanTableSource {
        private final ReadableConfig options;
        private final DataType type;

        Events(ReadableConfig options, DataType type) {
            this.options = options;
            this.type = type;
        }

        @Override
        public ChangelogMode getChangelogMode() { return ChangelogMode.insertOnly(); }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            TypeInformation<RowData> made = context.createTypeInformation(type);
            return SourceProvider.of(NexmarkSource.rowData(options.get(EVENTS), options.get(READERS),
                    options.get(RATE), options.get(BASE_MS), options.get(WARM), made));
        }

        @Override
        public DynamicTableSource copy() { return new Events(options, type); }

        @Override
        public String asSummaryString() { return "Nexmark events"; }
    }

    private static final class Results implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            ChangelogMode.Builder builder = ChangelogMode.newBuilder();
            for (RowKind kind : requested.getContainedKinds()) {
                if (kind != RowKind.UPDATE_BEFORE) builder.addContainedKind(kind);
            }
            return builder.build();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return SinkV2Provider.of(new NexmarkSink<RowData>());
        }

        @Override
        public DynamicTableSink copy() { return new Results(); }

        @Override
        public String asSummaryString() { return "Nexmark results"; }
    }
}
