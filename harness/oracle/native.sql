-- Spark's own count in real time, which sends a result for every record, from the tables records, results and bins.

-- After a restart results come again; what is above all before it is new.
CREATE TABLE numbered AS
SELECT *, count > coalesce(highest, 0) AS accepted
FROM (SELECT *, max(count) OVER (PARTITION BY key ORDER BY "partition", "offset"
                                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest FROM results);

CREATE TABLE totals AS SELECT key, count(*) AS total FROM records GROUP BY key;

CREATE TABLE finding AS
SELECT 'wrong' AS class, 'unknown key' AS why, NULL::BIGINT AS epoch, key, "partition", "offset", NULL::INT AS worker,
       NULL::BIGINT AS expected, count AS found
FROM numbered WHERE key NOT IN (SELECT key FROM totals)
UNION ALL
SELECT 'wrong', 'results of a key in two partitions', NULL, key, NULL, NULL, NULL, NULL, NULL
FROM numbered GROUP BY key HAVING count(DISTINCT "partition") > 1
UNION ALL
SELECT 'lost', 'no result of a record', NULL, key, "partition", "offset", NULL, coalesce(highest, 0) + 1, count
FROM numbered WHERE accepted AND count > coalesce(highest, 0) + 1
UNION ALL
SELECT CASE WHEN coalesce(last, 0) < total THEN 'lost' ELSE 'doubled' END, 'final count', NULL, key,
       NULL, NULL, NULL, total, last
FROM totals LEFT JOIN (SELECT key, max(count) AS last FROM numbered GROUP BY key) USING (key)
WHERE last IS DISTINCT FROM total;
