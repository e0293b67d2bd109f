-- Key-count recomputed, from the tables records, results, ranges, moves, waits, bins, numbered and misnumbered.

-- An input record arrives in the epoch whose offset range holds it.
CREATE TABLE arrived AS
SELECT i."partition", i."offset", i.key, CASE WHEN i."offset" < r."end" THEN r.epoch END AS epoch
FROM records i ASOF LEFT JOIN ranges r ON i."partition" = r."partition" AND i."offset" >= r."begin";

-- Waiting is for bins that move alone: a bin that stays has no reason to queue.
CREATE TABLE placed AS
SELECT a."partition", a."offset", a.key, coalesce(w.release, a.epoch) AS epoch,
       coalesce(w.release - a.epoch, 0) AS waited
FROM arrived a JOIN bins b ON a.key = b.key
LEFT JOIN (FROM waits WHERE bin IN (SELECT bin FROM moves)) w ON w.bin = b.bin AND w.epoch = a.epoch;

CREATE TABLE expected AS
SELECT epoch, key, CAST(sum(count(*)) OVER (PARTITION BY key ORDER BY epoch) AS BIGINT) AS truth
FROM placed WHERE epoch IS NOT NULL GROUP BY epoch, key;

-- Of several results of one key and epoch the one nearest to the truth is the result (rank 1), the others are extra.
CREATE TABLE matched AS
SELECT a.*, e.truth, row_number() OVER nearest AS rank
FROM numbered a LEFT JOIN expected e ON a.epoch = e.epoch AND a.key = e.key
WHERE a.accepted
WINDOW nearest AS (PARTITION BY a.epoch, a.key ORDER BY abs(a.count - e.truth), a."partition", a."offset");

CREATE TABLE finding AS
SELECT 'lost' AS class, 'no result' AS why, e.epoch, e.key, NULL::INT AS "partition", NULL::BIGINT AS "offset",
       NULL::INT AS worker, e.truth AS expected, NULL::BIGINT AS found
FROM expected e ANTI JOIN matched m ON e.epoch = m.epoch AND e.key = m.key
UNION ALL
SELECT 'lost', 'record in no committed epoch', NULL, key, "partition", "offset", NULL, NULL, NULL
FROM placed WHERE epoch IS NULL
UNION ALL
SELECT CASE WHEN count < truth THEN 'lost' ELSE 'doubled' END,
       CASE WHEN count < truth THEN 'count too small' ELSE 'count too large' END,
       epoch, key, "partition", "offset", worker, truth, count
FROM matched WHERE rank = 1 AND count <> truth
UNION ALL
SELECT 'doubled', 'second result of the epoch', epoch, key, "partition", "offset", worker, truth, count
FROM matched WHERE rank > 1 AND truth IS NOT NULL
UNION ALL
SELECT CASE WHEN key IN (SELECT key FROM records) THEN 'doubled' ELSE 'wrong' END,
       CASE WHEN key IN (SELECT key FROM records) THEN 'the epoch has no record of the key' ELSE 'unknown key' END,
       epoch, key, "partition", "offset", worker, NULL, count
FROM matched WHERE truth IS NULL
UNION ALL
FROM misnumbered
UNION ALL
SELECT 'out_of_order', 'not above the result before it', epoch, key, "partition", "offset", worker, count_before, count
FROM (SELECT *, lag(epoch) OVER per_key AS epoch_before, lag(count) OVER per_key AS count_before
      FROM matched WINDOW per_key AS (PARTITION BY key ORDER BY "partition", "offset"))
WHERE epoch <= epoch_before OR count <= count_before;

-- Does not use epochs at all: catches what a mistake in the attribution of records to epochs would hide.
INSERT INTO finding
SELECT CASE WHEN coalesce(last, 0) < total THEN 'lost' ELSE 'doubled' END, 'final count', NULL, key,
       NULL, NULL, NULL, total, last
FROM (SELECT key, count(*) AS total FROM records GROUP BY key)
LEFT JOIN (SELECT key, arg_max(count, number) AS last FROM matched GROUP BY key) USING (key)
WHERE last IS DISTINCT FROM total AND key NOT IN (SELECT key FROM finding);
