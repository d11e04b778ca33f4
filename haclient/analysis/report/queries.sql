-- part: outages
WITH outages AS (
  SELECT *, coalesce(never_connected OR episode_result IN ('open', 'silent', 'gave_up'), false) AS away
  FROM 'tables/episodes/*.parquet' WHERE NOT first_connect OR never_connected)
-- part: connections
WITH connections AS (
  SELECT client_id, instance, connection, max(service) AS service, min(epoch(began_at)) AS first_at,
    max(greatest(epoch(last_event_at), epoch(began_at) + coalesce(longer_than, 0))) AS until,
    bool_or(lost) AS hit, bool_or(lost AND (never_connected OR longer_than IS NOT NULL)) AS away,
    sum(coalesce(downtime, longer_than)) FILTER (lost) AS down
  FROM (SELECT *, NOT first_connect OR never_connected AS lost FROM 'tables/episodes/*.parquet')
  GROUP BY ALL)
-- query: away
$outages
SELECT service, cluster, endpoint_before AS endpoint,
  CASE WHEN never_connected THEN 'never_connected' ELSE episode_result END AS result,
  count(*) AS connections, min(began_at) AS since
FROM outages WHERE away GROUP BY ALL ORDER BY connections DESC, since
-- query: each_away
$outages
SELECT client_id, connection, service, cluster, endpoint_before AS endpoint, began_at AS since,
  resources.* EXCLUDE (resource)
FROM outages LEFT JOIN 'tables/resources/*.parquet' AS resources USING (resource)
WHERE away ORDER BY since, client_id
-- query: timeline
$outages, moments AS (
  SELECT epoch(began_at) AS moment, 1 AS lost, 0 AS ended FROM outages
  UNION ALL
  SELECT epoch(coalesce(back_at, last_event_at)), 0, 1 FROM outages WHERE NOT away)
SELECT make_timestamp((floor(moment / $width) * $width * 1000000)::BIGINT) AS start,
  sum(lost) AS lost, sum(ended) AS ended, sum(sum(lost) - sum(ended)) OVER (ORDER BY start) AS away_after
FROM moments GROUP BY start ORDER BY start
-- query: promotions
SELECT cluster, generation_after AS generation, min(back_at) AS since, arg_min(endpoint_after, back_at) AS endpoint
FROM 'tables/episodes/*.parquet' WHERE generation_after > generation_before
GROUP BY cluster, generation_after ORDER BY since DESC
-- query: storms
SELECT * FROM 'tables/storms/*.parquet' ORDER BY clients_hit DESC, started_at
-- query: storm
SELECT storm_id, second, concat_ws(':', server_address, server_port) AS member,
  sum(attempts) AS attempts, sum(connected) AS connected
FROM 'tables/storm_timeline/*.parquet' GROUP BY ALL ORDER BY storm_id, second, member
-- query: hit
SELECT attribute, value, "values", connections, connections_hit + never_connected AS hit,
  open + silent + gave_up + never_connected AS away
FROM 'tables/hit_by/*.parquet' ORDER BY attribute, away DESC, hit DESC, connections DESC
-- query: deploys
WITH versions AS (
  SELECT service, service_version, client_version, began_at
  FROM 'tables/episodes/*.parquet' JOIN 'tables/resources/*.parquet' USING (resource)),
seen AS (
  SELECT service, 'service.version' AS attribute, service_version AS value, min(began_at) AS since
  FROM versions GROUP BY ALL
  UNION ALL
  SELECT service, 'haclient.version', client_version, min(began_at) FROM versions GROUP BY ALL)
SELECT since, service, attribute, value, lag(value) OVER of_service AS before
FROM seen WHERE value IS NOT NULL WINDOW of_service AS (PARTITION BY service, attribute ORDER BY since, value)
QUALIFY since > min(since) OVER of_service + INTERVAL 120 SECONDS ORDER BY since DESC
-- query: ecdf
SELECT downtime, cume_dist() OVER (ORDER BY coalesce(downtime, 'infinity'::DOUBLE)) AS share
FROM 'tables/episodes/*.parquet'
WHERE NOT first_connect AND (downtime IS NOT NULL OR longer_than IS NOT NULL) OR never_connected
QUALIFY downtime IS NOT NULL ORDER BY downtime
-- query: slo
$connections
SELECT service, count(*) AS connections, count(*) FILTER (hit) AS hit, count(*) FILTER (away) AS away,
  sum(until - first_at) / 60 AS minutes, sum(least(coalesce(down, 0), until - first_at)) / 60 AS lost_minutes,
  (1 - $slo) * minutes AS allowed_minutes
FROM connections GROUP BY ROLLUP (service) ORDER BY lost_minutes DESC
-- query: lost_reasons
SELECT endpoint_before AS endpoint, lost_kind AS kind, lost_reason AS reason, count(*) AS outages
FROM 'tables/episodes/*.parquet' WHERE NOT first_connect GROUP BY ALL ORDER BY outages DESC
-- query: failures
SELECT server_address, server_port, unnest(map_keys(failures)) AS error,
  unnest(map_values(failures)) AS failures
FROM 'tables/members/*.parquet' ORDER BY failures DESC
-- query: members
SELECT * FROM 'tables/members/*.parquet' ORDER BY attempts DESC
-- query: alarms
SELECT * FROM 'tables/alarms/*.parquet' ORDER BY "at" DESC
-- query: advice
SELECT * FROM 'tables/advice/*.parquet'
-- query: jitter
SELECT * FROM 'tables/jitter/*.parquet' ORDER BY strategy, round
-- query: sites
SELECT * FROM 'tables/site_lag/*.parquet' ORDER BY start, cluster, link
-- query: not_recovered
SELECT * FROM 'tables/not_recovered/*.parquet' ORDER BY last_seen DESC
-- query: compared
WITH this AS (
  UNPIVOT (SELECT COLUMNS(*)::DOUBLE FROM (SELECT unnest(summary) FROM 'summary.json'))
  ON COLUMNS(*) INTO NAME metric VALUE now),
former AS (
  UNPIVOT (SELECT COLUMNS(*)::DOUBLE FROM (SELECT unnest(summary) FROM '$baseline/summary.json'))
  ON COLUMNS(*) INTO NAME metric VALUE before)
SELECT metric, now, before, now - before AS change FROM this FULL JOIN former USING (metric) ORDER BY metric
