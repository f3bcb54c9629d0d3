CREATE TEMPORARY TABLE events (
    event_type INT,
    person ROW<id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING,
        state STRING, `dateTime` TIMESTAMP(3), extra STRING>,
    auction ROW<id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
        `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING>,
    bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,
        `dateTime` TIMESTAMP(3), extra STRING>,
    `dateTime` AS CASE
        WHEN event_type = 0 THEN person.`dateTime`
        WHEN event_type = 1 THEN auction.`dateTime`
        ELSE bid.`dateTime`
    END,
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
    'connector' = 'nexmark',
    'events' = '${events}',
    'readers' = '${readers}',
    'rate' = '${rate}',
    'base-ms' = '${base_ms}',
    'warm' = '${warm}'
);

CREATE TEMPORARY VIEW person AS
SELECT person.id, person.name, person.emailAddress, person.creditCard, person.city, person.state,
    `dateTime`, person.extra
FROM events WHERE event_type = 0;

CREATE TEMPORARY VIEW auction AS
SELECT auction.id, auction.itemName, auction.description, auction.initialBid, auction.reserve,
    `dateTime`, auction.expires, auction.seller, auction.category, auction.extra
FROM events WHERE event_type = 1;

CREATE TEMPORARY VIEW bid AS
SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, `dateTime`, bid.extra
FROM events WHERE event_type = 2;

CREATE TEMPORARY VIEW bid_now AS
SELECT *, PROCTIME() AS p_time FROM bid;

CREATE TEMPORARY TABLE side_input (
    key BIGINT,
    `value` STRING
) WITH (
    'connector' = 'nexmark-side'
);

CREATE TEMPORARY TABLE files (
    auction BIGINT,
    bidder BIGINT,
    price BIGINT,
    `dateTime` TIMESTAMP(3),
    extra STRING,
    dt STRING,
    hm STRING
) PARTITIONED BY (dt, hm) WITH (
    'connector' = 'filesystem',
    'path' = 'file://${folder}/files',
    'format' = 'csv',
    'sink.partition-commit.trigger' = 'partition-time',
    'sink.partition-commit.delay' = '1 min',
    'sink.partition-commit.policy.kind' = 'success-file',
    'partition.time-extractor.timestamp-pattern' = '$dt $hm:00',
    'sink.rolling-policy.rollover-interval' = '1min',
    'sink.rolling-policy.check-interval' = '1min'
)
