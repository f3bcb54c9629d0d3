SELECT B.auction, B.bidder, B.price, B.`dateTime`, S.`value`
FROM bid_now AS B
JOIN side_input FOR SYSTEM_TIME AS OF B.p_time AS S ON MOD(B.auction, 10000) = S.key
