package tidegate.peer;

import java.io.Serializable;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;

/**
 * Nexmark's events by their number, bit for bit those of benchmarks/nexmark/generator.py, where the rules stand.
 *
 * <p>Run by itself it prints the golden file of the tests.
 */
public final class NexmarkGenerator implements Serializable {
    public static final int PERSON = 0, AUCTION = 1, BID = 2;

    private static final int PERSONS = 1, AUCTIONS = 3, PERIOD = 50;
    private static final int FIRST_ID = 1000, FIRST_CATEGORY = 10, CATEGORIES = 5;
    private static final int LEAD = 10, ACTIVE_PEOPLE = 1000, IN_FLIGHT_AUCTIONS = 100, HOT_BATCH = 100;
    private static final int CHANNELS = 10_000, HOT_CHANNELS = 4;
    private static final int TEXT_BYTES = 1 << 20, LONGEST = 1024;
    private static final long GOLDEN = 0x9E3779B97F4A7C15L, LOW = 0xFFFFFFFFL;
    private static final long EVENTS = 0x6E65786D61726BL, LETTERS = 0x6C657474657273L, WORDS = 0x776F726473L;
    private static final String[] FIRST_NAMES =
            "Peter Paul Luke John Saul Vicky Kate Julie Sarah Deiter Walter".split(" ");
    private static final String[] LAST_NAMES =
            "Shultz Abrams Spencer White Bartels Walton Smith Jones Noris".split(" ");
    private static final String[] CITIES =
            "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne".split(",");
    private static final String[] STATES = "AZ CA ID OR WA WY".split(" ");
    private static final String[] HOT = {"Google", "Facebook", "Baidu", "Apple"};

    private static final String LETTER_TEXT = text(LETTERS, false), WORD_TEXT = text(WORDS, true);
    private static final double[] COARSE = new double[1 << 16], FINE = new double[1 << 16];
    private static final String[] NAMES = new String[HOT_CHANNELS + CHANNELS];
    private static final String[] URLS = new String[HOT_CHANNELS + CHANNELS];

    static {
        double root = 1000.0;
        for (double[] table : new double[][] {COARSE, FINE}) {
            java.util.Arrays.fill(table, 1.0);
            for (int bit = 15; bit >= 0; bit--) {
                for (int i = 0; i < table.length; i++) {
                    if ((i >> bit & 1) == 1) table[i] *= root;
                }
                root = Math.sqrt(root);
            }
        }
        for (int i = 0; i < COARSE.length; i++) COARSE[i] *= 100.0;
        String words = WORD_TEXT.replace(' ', '_');
        for (int i = 0; i < NAMES.length; i++) {
            StringBuilder url = new StringBuilder("https://www.nexmark.com");
            for (int draw = 0; draw < 3; draw++) {
                long z = mixed(WORDS, i * 16L + draw + TEXT_BYTES);
                int start = (int) below(z >>> 32, TEXT_BYTES - LONGEST);
                url.append('/').append(words, start, start + 3 + (int) below(z & LOW, 2));
            }
            url.append("/item.htm?query=1");
            int other = i - HOT_CHANNELS;
            if (other >= 0 && below(mixed(WORDS, i * 16L + 3 + TEXT_BYTES) >>> 32, 10) > 0) {
                url.append("&channel_id=").append(Math.abs(Integer.reverse(other)));
            }
            NAMES[i] = other < 0 ? HOT[i] : "channel-" + other;
            URLS[i] = url.toString();
        }
    }

    private final long rate;
    private final long baseMs;

    public NexmarkGenerator(long rate, long baseMs) {
        this.rate = rate;
        this.baseMs = baseMs;
    }

    static long mixed(long seed, long counter) {
        long z = (counter + 1) * GOLDEN + seed;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    static long below(long draw, long bound) { return draw * bound >>> 32; }

    private static long draw(long number, int draw) { return mixed(EVENTS, number * 16 + draw); }

    private static String text(long seed, boolean blanks) {
        byte[] signs = new byte[TEXT_BYTES];
        for (int i = 0; i < TEXT_BYTES; i++) {
            long z = mixed(seed, i);
            boolean blank = blanks && below(z & LOW, 13) == 0;
            signs[i] = (byte) (blank ? ' ' : 'a' + below(z >>> 32, 26));
        }
        return new String(signs, StandardCharsets.US_ASCII);
    }

    private static String words(long number, int draw, int longest) {
        long z = draw(number, draw);
        int start = (int) below(z >>> 32, TEXT_BYTES - LONGEST);
        return WORD_TEXT.substring(start, start + 3 + (int) below(z & LOW, longest - 3)).strip();
    }

    private static String extra(long number, int draw, int size, int target) {
        long z = draw(number, draw);
        int room = target - size, spread = (2 * room + 5) / 10;
        int start = (int) below(z >>> 32, TEXT_BYTES - LONGEST);
        return LETTER_TEXT.substring(start, start + room - spread + (int) below(z & LOW, 2 * spread));
    }

    private static long price(long draw) {
        return (long) (COARSE[(int) (draw >>> 16)] * FINE[(int) (draw & 0xFFFF)] + 0.5);
    }

    private static String digits(long draw) {
        String all = String.format("%08d", below(draw, 100_000_000));
        return all.substring(0, 4) + " " + all.substring(4);
    }

    private static long lastPerson(long number) { return number / PERIOD; }

    private static long lastAuction(long number) {
        return number / PERIOD * AUCTIONS + Math.min(number % PERIOD - PERSONS, AUCTIONS - 1);
    }

    private static long anyPerson(long newest, long draw) {
        long active = Math.min(newest + 1, ACTIVE_PEOPLE);
        return newest + 1 - active + below(draw, active + LEAD);
    }

    private static long anyAuction(long newest, long draw) {
        long oldest = Math.max(newest - IN_FLIGHT_AUCTIONS, 0);
        return oldest + below(draw, newest - oldest + 1 + LEAD);
    }

    public static int kind(long number) {
        long within = number % PERIOD;
        return within < PERSONS ? PERSON : within < PERSONS + AUCTIONS ? AUCTION : BID;
    }

    /** Milliseconds since 1970. */
    public long dateTime(long number) { return baseMs + number * 1_000_000 / rate / 1000; }

    /** The fields of the event's person, auction or bid: Long and String, times in milliseconds. */
    public Object[] record(long number) {
        switch (kind(number)) {
            case PERSON: return person(number);
            case AUCTION: return auction(number);
            default: return bid(number);
        }
    }

    private Object[] person(long number) {
        long z = draw(number, 0);
        String name = FIRST_NAMES[(int) below(z >>> 32, FIRST_NAMES.length)] + " "
                + LAST_NAMES[(int) below(z & LOW, LAST_NAMES.length)];
        String email = words(number, 1, 7) + "@" + words(number, 2, 5) + ".com";
        z = draw(number, 3);
        String card = digits(z >>> 32) + " " + digits(z & LOW);
        z = draw(number, 4);
        String city = CITIES[(int) below(z >>> 32, CITIES.length)];
        String state = STATES[(int) below(z & LOW, STATES.length)];
        int size = 8 + name.length() + email.length() + card.length() + city.length() + state.length();
        return new Object[] {FIRST_ID + lastPerson(number), name, email, card, city, state, dateTime(number),
                extra(number, 5, size, 200)};
    }

    private Object[] auction(long number) {
        long z = draw(number, 0), newest = lastPerson(number);
        long seller = below(z >>> 32, 4) > 0 ? newest / HOT_BATCH * HOT_BATCH : anyPerson(newest, z & LOW);
        z = draw(number, 1);
        long category = FIRST_CATEGORY + below(z >>> 32, CATEGORIES), initial = price(z & LOW);
        z = draw(number, 2);
        long time = dateTime(number), horizon = dateTime(number + 100 * PERIOD / AUCTIONS) - time;
        long expires = time + 1 + below(z >>> 32, Math.max(2 * horizon, 1));
        String item = words(number, 3, 20), description = words(number, 4, 100);
        int size = 8 + item.length() + description.length() + 40;
        return new Object[] {FIRST_ID + lastAuction(number), item, description, initial, initial + price(z & LOW),
                time, expires, FIRST_ID + seller, category, extra(number, 5, size, 500)};
    }

    private Object[] bid(long number) {
        long z = draw(number, 0), newest = lastAuction(number);
        long auction = below(z >>> 32, 2) > 0 ? newest / HOT_BATCH * HOT_BATCH : anyAuction(newest, z & LOW);
        z = draw(number, 1);
        newest = lastPerson(number);
        long bidder = below(z >>> 32, 4) > 0 ? newest / HOT_BATCH * HOT_BATCH + 1 : anyPerson(newest, z & LOW);
        z = draw(number, 2);
        long price = price(z >>> 32), other = draw(number, 3);
        int channel = (int) (below(z & LOW, 2) > 0
                ? below(other & LOW, HOT_CHANNELS) : HOT_CHANNELS + below(other >>> 32, CHANNELS));
        return new Object[] {FIRST_ID + auction, FIRST_ID + bidder, price, NAMES[channel], URLS[channel],
                dateTime(number), extra(number, 4, 32, 100)};
    }

    private String line(long number) {
        StringBuilder line = new StringBuilder().append(kind(number));
        for (Object field : record(number)) line.append('|').append(field);
        return line.toString();
    }

    public static void main(String[] args) throws Exception {
        long[][] parts = {
            {100, 1_436_918_380_000L, 0, 5_000, 8},
            {10_000, 1_436_918_400_000L, 12_345_650, 12_350_000, 2},
            {100_000, 1_700_000_000_123L, 7_000_000_001L, 7_000_003_000L, 2}};
        StringBuilder json = new StringBuilder("[\n");
        for (long[] part : parts) {
            NexmarkGenerator generator = new NexmarkGenerator(part[0], part[1]);
            MessageDigest sha = MessageDigest.getInstance("SHA-256");
            StringBuilder first = new StringBuilder();
            for (long number = part[2]; number < part[3]; number++) {
                String line = generator.line(number);
                sha.update((line + "\n").getBytes(StandardCharsets.UTF_8));
                if (number < part[2] + part[4]) {
                    first.append(first.length() == 0 ? "\n" : ",\n").append("      \"").append(line).append('"');
                }
            }
            json.append(json.length() == 2 ? "" : ",\n").append(String.format(
                    "  {\n    \"rate\": %d,\n    \"base_ms\": %d,\n    \"start\": %d,\n    \"end\": %d,\n"
                            + "    \"first\": [%s\n    ],\n    \"sha256\": \"%s\"\n  }",
                    part[0], part[1], part[2], part[3], first, String.format("%064x", new BigInteger(1, sha.digest()))));
        }
        System.out.println(json.append("\n]"));
    }
}
