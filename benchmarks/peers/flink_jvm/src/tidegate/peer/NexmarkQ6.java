package tidegate.peer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.table.data.RowData;
import org.apache.flink.util.Collector;

/** q6, which SQL cannot say: the average price of a seller's last ten closed auctions. */
final class NexmarkQ6 {
    private NexmarkQ6() {}

    private static final TypeInformation<Tuple2<Long, Long>> PAIR = Types.TUPLE(Types.LONG, Types.LONG);
    private static final TypeInformation<Tuple3<Long, Long, Long>> TRIPLE =
            Types.TUPLE(Types.LONG, Types.LONG, Types.LONG);

    static DataStream<Tuple2<Long, Long>> build(DataStream<RowData> events) {
        // (auction, type, time, expires or price, seller or 0)
        return events.filter(e -> e.getInt(0) != NexmarkGenerator.PERSON)
                .map(NexmarkQ6::sale)
                .returns(Types.TUPLE(Types.LONG, Types.LONG, Types.LONG, Types.LONG, Types.LONG))
                .assignTimestampsAndWatermarks(WatermarkStrategy
                        .<Tuple5<Long, Long, Long, Long, Long>>forBoundedOutOfOrderness(Duration.ofSeconds(4))
                        .withTimestampAssigner((sale, t) -> sale.f2))
                .keyBy(sale -> sale.f0, Types.LONG)
                .process(new Closed()).returns(Types.TUPLE(Types.LONG, Types.LONG, Types.LONG, Types.LONG))
                .keyBy(closed -> closed.f0, Types.LONG)
                .process(new LastAverages()).returns(PAIR);
    }

    private static Tuple5<Long, Long, Long, Long, Long> sale(RowData event) {
        if (event.getInt(0) == NexmarkGenerator.AUCTION) {
            RowData auction = event.getRow(2, 10);
            return Tuple5.of(auction.getLong(0), 1L, auction.getTimestamp(5, 3).getMillisecond(),
                    auction.getTimestamp(6, 3).getMillisecond(), auction.getLong(7));
        }
        RowData bid = event.getRow(3, 7);
        return Tuple5.of(bid.getLong(0), 2L, bid.getTimestamp(5, 3).getMillisecond(), bid.getLong(2), 0L);
    }

    /** (seller, time of the winning bid, auction, price) once an auction has expired. */
    private static final class Closed extends KeyedProcessFunction<Long, Tuple5<Long, Long, Long, Long, Long>,
            Tuple4<Long, Long, Long, Long>> {
        private transient ValueState<Tuple3<Long, Long, Long>> auction; // time, expires, seller
        private transient ValueState<Tuple2<Long, Long>> best; // price, time
        private transient ListState<Tuple2<Long, Long>> early;

        @Override
        public void open(OpenContext context) {
            auction = getRuntimeContext().getState(new ValueStateDescriptor<>("auction", TRIPLE));
            best = getRuntimeContext().getState(new ValueStateDescriptor<>("best", PAIR));
            early = getRuntimeContext().getListState(new ListStateDescriptor<>("early", PAIR));
        }

        private static boolean better(Tuple2<Long, Long> bid, Tuple2<Long, Long> best) {
            return best == null || bid.f0 > best.f0 || (bid.f0.equals(best.f0) && bid.f1 < best.f1);
        }

        @Override
        public void processElement(Tuple5<Long, Long, Long, Long, Long> sale, Context context,
                Collector<Tuple4<Long, Long, Long, Long>> out) throws Exception {
            if (sale.f1 == 1L) {
                auction.update(Tuple3.of(sale.f2, sale.f3, sale.f4));
                Tuple2<Long, Long> found = null;
                for (Tuple2<Long, Long> bid : early.get()) {
                    if (sale.f2 <= bid.f1 && bid.f1 <= sale.f3 && better(bid, found)) found = bid;
                }
                early.clear();
                if (found != null) best.update(found);
                context.timerService().registerEventTimeTimer(sale.f3);
                return;
            }
            Tuple2<Long, Long> bid = Tuple2.of(sale.f3, sale.f2);
            Tuple3<Long, Long, Long> open = auction.value();
            if (open == null) early.add(bid);
            else if (open.f0 <= bid.f1 && bid.f1 <= open.f1 && better(bid, best.value())) best.update(bid);
        }

        @Override
        public void onTimer(long time, OnTimerContext context, Collector<Tuple4<Long, Long, Long, Long>> out)
                throws Exception {
            Tuple2<Long, Long> won = best.value();
            if (won != null) out.collect(Tuple4.of(auction.value().f2, won.f1, context.getCurrentKey(), won.f0));
            auction.clear();
            best.clear();
        }
    }

    /** (seller, average of the last auctions in the order of their winning bids). */
    private static final class LastAverages
            extends KeyedProcessFunction<Long, Tuple4<Long, Long, Long, Long>, Tuple2<Long, Long>> {
        private transient ListState<Tuple3<Long, Long, Long>> last;

        @Override
        public void open(OpenContext context) {
            last = getRuntimeContext().getListState(new ListStateDescriptor<>("last", TRIPLE));
        }

        @Override
        public void processElement(Tuple4<Long, Long, Long, Long> closed, Context context,
                Collector<Tuple2<Long, Long>> out) throws Exception {
            List<Tuple3<Long, Long, Long>> all = new ArrayList<>();
            for (Tuple3<Long, Long, Long> each : last.get()) all.add(each);
            all.add(Tuple3.of(closed.f1, closed.f2, closed.f3));
            all.sort(Comparator.<Tuple3<Long, Long, Long>>comparingLong(e -> e.f0).thenComparingLong(e -> e.f1));
            if (all.size() > 10) all.remove(0);
            last.update(all);
            long sum = 0;
            for (Tuple3<Long, Long, Long> each : all) sum += each.f2;
            out.collect(Tuple2.of(closed.f0, sum / all.size()));
        }
    }
}
