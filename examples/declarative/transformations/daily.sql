CREATE MATERIALIZED VIEW daily
USING phalanx
PARTITIONED BY (country)
COMMENT 'Totals of a day and a country'
AS SELECT CAST(ts AS DATE) AS day, country, count(*) AS events, sum(amount) AS total
FROM clean
GROUP BY CAST(ts AS DATE), country;
