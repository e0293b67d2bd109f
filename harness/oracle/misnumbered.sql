-- Results of key-count that are wrong whatever their numbers count, epochs or commits: from the tables numbered and bins.

CREATE TABLE misnumbered AS
SELECT 'wrong' AS class, 'partition of another bin' AS why, n.epoch, n.key, n."partition", n."offset", n.worker,
       NULL::BIGINT AS expected, n.count AS found
FROM numbered n JOIN bins b ON n.key = b.key WHERE n."partition" <> b.home
UNION ALL
SELECT CASE WHEN a.number IS NULL THEN 'out_of_order' ELSE 'wrong' END,
       CASE WHEN a.number IS NULL THEN 'behind a later number' ELSE 'differs from what it repeats' END,
       n.epoch, n.key, n."partition", n."offset", n.worker, a.count, n.count
FROM (FROM numbered WHERE NOT accepted) n LEFT JOIN (FROM numbered WHERE accepted) a
     ON n.worker = a.worker AND n."partition" = a."partition" AND n.number = a.number
WHERE a.number IS NULL OR a.key <> n.key OR a.count <> n.count;
