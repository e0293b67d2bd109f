-- What is wrong, from the tables compared, read and numbered; $keyed: a key's results come from its bin.
CREATE TABLE finding AS
SELECT CASE WHEN found < expected THEN 'lost' WHEN expected > 0 THEN 'doubled' ELSE 'wrong' END AS class,
       CASE WHEN found < expected THEN 'result missing' WHEN expected > 0 THEN 'result too often'
            ELSE 'no such result' END AS why,
       abs(expected - found) AS n, epoch, expected, found, result
FROM compared WHERE expected <> found
UNION ALL
SELECT 'lost', 'event in no committed epoch', 1, NULL, NULL, NULL, 'partition ' || "partition" || ' offset ' || "offset"
FROM read WHERE epoch IS NULL
UNION ALL
SELECT CASE WHEN a.number IS NULL THEN 'out_of_order' ELSE 'wrong' END,
       CASE WHEN a.number IS NULL THEN 'behind a later number' ELSE 'differs from what it repeats' END,
       1, n.epoch, NULL, NULL, n.value
FROM (FROM numbered WHERE NOT accepted) n LEFT JOIN (FROM numbered WHERE accepted) a
     ON n.worker = a.worker AND n."partition" = a."partition" AND n.number = a.number
WHERE a.number IS NULL OR a.key <> n.key OR a.value <> n.value
UNION ALL
SELECT 'wrong', 'results of a key in two partitions', count(*), NULL, NULL, NULL, hex(key)
FROM numbered WHERE $keyed GROUP BY key HAVING count(DISTINCT "partition") > 1;
