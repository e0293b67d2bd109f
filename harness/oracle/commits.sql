-- Key-count where a worker's results are numbered by its commits, from the tables records, results, bins, numbered,
-- misnumbered and next_offsets. Nothing says which records a commit took, so a key's counts are held against each other
-- and its total.
-- A number has the epoch, and the worker's commit in it; the index goes on from commit to commit.

CREATE TABLE counted AS
SELECT *, lag(count) OVER per_key AS count_before FROM numbered WHERE accepted
WINDOW per_key AS (PARTITION BY key ORDER BY "partition", "offset");

CREATE TABLE totals AS SELECT key, count(*) AS total FROM records GROUP BY key;

CREATE TABLE ends AS
SELECT r."partition", b.bin, max(r."offset") AS last FROM records r JOIN bins b ON r.key = b.key GROUP BY ALL;

CREATE TABLE finding AS
SELECT 'wrong' AS class, 'unknown key' AS why, epoch, key, "partition", "offset", worker, NULL::BIGINT AS expected,
       count AS found
FROM counted WHERE key NOT IN (SELECT key FROM totals)
UNION ALL
FROM misnumbered
UNION ALL
SELECT CASE WHEN count = count_before THEN 'doubled' ELSE 'out_of_order' END,
       CASE WHEN count = count_before THEN 'the same count under another number'
            ELSE 'not above the result before it' END,
       epoch, key, "partition", "offset", worker, count_before, count
FROM counted WHERE count <= coalesce(count_before, 0)
UNION ALL
SELECT CASE WHEN coalesce(last, 0) < total THEN 'lost' ELSE 'doubled' END, 'final count', NULL, key,
       NULL, NULL, NULL, total, last
FROM totals LEFT JOIN (SELECT key, max(count) AS last FROM counted GROUP BY key) USING (key)
WHERE last IS DISTINCT FROM total
UNION ALL
SELECT 'lost', 'results of the epoch are missing', epoch, NULL, NULL, NULL, worker, max("index") + 1, count(*)
FROM (SELECT DISTINCT worker, epoch, "index" FROM counted) GROUP BY worker, epoch
HAVING count(*) <> max("index") + 1
UNION ALL
SELECT 'lost', 'the bin''s next offset is not behind its last record', NULL, NULL, e."partition", e.last, n.worker,
       e.last + 1, coalesce(n.next, 0)
FROM ends e LEFT JOIN next_offsets n USING (bin, "partition")
WHERE $offsets AND coalesce(n.next, 0) <= e.last
UNION ALL
SELECT 'wrong', 'the bin''s next offset is beyond the end of the topic', NULL, NULL, n."partition", NULL, n.worker,
       t.last + 1, n.next
FROM next_offsets n LEFT JOIN (SELECT "partition", max("offset") AS last FROM records GROUP BY ALL) t USING ("partition")
WHERE $offsets AND n.next > coalesce(t.last, -1) + 1;
