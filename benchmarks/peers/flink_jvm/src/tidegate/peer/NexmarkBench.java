package tidegate.peer;

import java.io.PrintWriter;
import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.runtime.util.EnvironmentInformation;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.catalog.Column;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Queries of Nexmark in a local cluster inside this JVM: their SQL text, q6 as a DataStream job.
 *
 * <p>--query q0 or q0,q5: one after another, so that the JVM has compiled most of it for the later ones.
 */
public final class NexmarkBench {
    private NexmarkBench() {}

    /** How often a sign is in a text: q14's user function. */
    public static final class CountChar extends ScalarFunction {
        public Long eval(String text, String sign) {
            long count = 0;
            char wanted = sign.charAt(0);
            for (int i = 0; i < text.length(); i++) {
                if (text.charAt(i) == wanted) count++;
            }
            return count;
        }
    }

    public static void main(String[] argv) throws Exception {
        Map<String, String> a = new HashMap<>();
        for (int i = 0; i + 1 < argv.length; i += 2) a.put(argv[i].substring(2), argv[i + 1]);
        for (String query : a.get("query").split(",")) {
            Stats.reset();
            run(query, a);
        }
        System.out.flush();
        System.exit(0);
    }

    private static void run(String query, Map<String, String> a) throws Exception {
        String out = a.get("out");
        int p = Integer.parseInt(a.getOrDefault("parallelism", "2"));
        long n = Long.parseLong(a.get("records")) / p * p, rate = Long.parseLong(a.get("rate"));
        long baseMs = Long.parseLong(a.get("base-ms")), checkpointMs = Long.parseLong(a.get("checkpoint-ms"));
        boolean verify = Boolean.parseBoolean(a.getOrDefault("verify", "false"));
        long warm = (long) (n / p * Double.parseDouble(a.getOrDefault("warmup-frac", "0.1")));

        Configuration c = new Configuration();
        c.setString("state.backend.type", a.getOrDefault("backend", "hashmap"));
        c.setString("execution.checkpointing.dir", "file://" + out + "/checkpoints");
        c.setString("restart-strategy.type", "none");
        c.setString("taskmanager.numberOfTaskSlots", Integer.toString(p));
        c.setString("taskmanager.memory.managed.size", a.getOrDefault("managed-memory", "512m"));
        c.setString("taskmanager.memory.network.min", "128m");
        c.setString("taskmanager.memory.network.max", "128m");
        c.setString("io.tmp.dirs", out + "/tmp");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(p, c);
        if (checkpointMs > 0) env.enableCheckpointing(checkpointMs, CheckpointingMode.EXACTLY_ONCE);
        env.getConfig().enableObjectReuse();

        if (query.equals("q6")) {
            TypeInformation<RowData> type = InternalTypeInfo.of(NexmarkSource.dataType().getLogicalType());
            DataStream<RowData> events = env.fromSource(NexmarkSource.rowData(n, p, rate, baseMs, warm, type),
                    WatermarkStrategy.noWatermarks(), "events");
            var results = NexmarkQ6.build(events);
            if (verify) {
                try (PrintWriter lines = new PrintWriter(out + "/results.jsonl");
                        CloseableIterator<?> found = results.executeAndCollect()) {
                    while (found.hasNext()) {
                        var row = (org.apache.flink.api.java.tuple.Tuple2<?, ?>) found.next();
                        lines.println("[\"+U\", " + row.f0 + ", " + row.f1 + "]");
                    }
                }
                return;
            }
            results.sinkTo(new NexmarkSink<>());
            env.execute("nexmark q6");
        } else {
            StreamTableEnvironment tables = StreamTableEnvironment.create(env);
            tables.getConfig().set("table.local-time-zone", "UTC");
            tables.getConfig().set("table.exec.mini-batch.enabled", "true");
            tables.getConfig().set("table.exec.mini-batch.allow-latency", "2 s");
            tables.getConfig().set("table.exec.mini-batch.size", "50000");
            tables.getConfig().set("table.optimizer.distinct-agg.split.enabled", "true");
            tables.createTemporarySystemFunction("count_char", CountChar.class);
            Path folder = Path.of(a.get("sql"));
            String ddl = Files.readString(folder.resolve("tables.sql"))
                    .replace("${events}", Long.toString(n)).replace("${readers}", Integer.toString(p))
                    .replace("${rate}", Long.toString(rate)).replace("${base_ms}", Long.toString(baseMs))
                    .replace("${warm}", Long.toString(warm)).replace("${folder}", out);
            for (String statement : ddl.split(";")) {
                if (!statement.isBlank()) tables.executeSql(statement);
            }
            Table results = tables.sqlQuery(Files.readString(folder.resolve(query + ".sql")));
            if (verify) {
                try (PrintWriter lines = new PrintWriter(out + "/results.jsonl");
                        CloseableIterator<Row> found = results.execute().collect()) {
                    while (found.hasNext()) lines.println(json(found.next()));
                }
                return;
            }
            Schema.Builder schema = Schema.newBuilder();
            for (Column column : results.getResolvedSchema().getColumns()) {
                boolean time = column.getDataType().getLogicalType().toString().startsWith("TIMESTAMP");
                schema.column(column.getName(), time ? DataTypes.TIMESTAMP(3) : column.getDataType().nullable());
            }
            tables.createTemporaryTable("results",
                    TableDescriptor.forConnector("nexmark").schema(schema.build()).build());
            StatementSet statements = tables.createStatementSet();
            statements.addInsert("results", results);
            if (query.equals("q10")) statements.addInsert("files", results);
            statements.execute().await();
        }
        double seconds = Stats.steadyNanos() / 1e9;
        long counted = Stats.steadyRecords();
        System.out.printf("{\"system\": \"flink-%s\", \"version\": \"%s\", \"workload\": \"nexmark\", \"query\": \"%s\", "
                        + "\"records\": %d, \"rate\": %d, \"parallelism\": %d, \"checkpoint_ms\": %d, "
                        + "\"seconds\": %.4f, \"records_counted\": %d, \"records_per_s\": %.1f, "
                        + "\"processor_ns\": %.1f, \"outputs\": %d}%n",
                query.equals("q6") ? "datastream" : "sql", EnvironmentInformation.getVersion(), query, n, rate, p,
                checkpointMs, seconds, counted, counted / seconds, Stats.steadyCpuNanosPerRecord(), Stats.outCount());
    }

    /** [kind, field, …]; times in milliseconds, decimals as texts. */
    private static String json(Row row) {
        StringBuilder line = new StringBuilder("[\"").append(row.getKind().shortString()).append('"');
        for (int i = 0; i < row.getArity(); i++) {
            Object field = row.getField(i);
            if (field instanceof LocalDateTime) field = ((LocalDateTime) field).toInstant(ZoneOffset.UTC).toEpochMilli();
            boolean text = field instanceof String || field instanceof BigDecimal;
            line.append(", ").append(text ? "\"" + field + "\"" : field);
        }
        return line.append(']').toString();
    }
}
