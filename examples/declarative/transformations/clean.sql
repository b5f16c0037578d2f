CREATE MATERIALIZED VIEW clean
USING phalanx
PARTITIONED BY (country)
COMMENT 'The valid events, each once'
AS SELECT DISTINCT * FROM raw WHERE country IS NOT NULL;
