"""A second computation of every table, in SQL on DuckDB, from the same files.

It shares nothing with the pipeline, not even the parsing of JSON.  Times are microseconds since the epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from haclient.telemetry.schema import DATA, Type

SILENCE = 120_000_000

_READ = """
CREATE TABLE text AS
SELECT line FROM read_csv('{files}', delim = '\x01', quote = '', escape = '', header = false,
                          columns = {{'line': 'VARCHAR'}}, auto_detect = false);
CREATE TABLE read AS
SELECT {columns} FROM (SELECT DISTINCT line FROM text WHERE json_valid(line));
CREATE TABLE pieces AS
WITH known AS (
  SELECT source, CAST(round_even(monotonic * 1e6, 0) AS BIGINT) AS monotonic, wall FROM read
  WHERE wall IS NOT NULL AND monotonic IS NOT NULL AND source IS NOT NULL),
near AS (
  SELECT *, wall - monotonic AS apart, lead(wall - monotonic, 1) OVER line AS second,
         lead(wall - monotonic, 2) OVER line AS third
  FROM known WINDOW line AS (PARTITION BY source ORDER BY monotonic, wall - monotonic)),
agreeing AS (
  SELECT *, CASE WHEN third IS NOT NULL
                  AND greatest(apart, second, third) - least(apart, second, third) <= 250000
            THEN list_sort([apart, second, third])[2] END AS agreed FROM near),
compared AS (
  SELECT *, last_value(agreed IGNORE NULLS) OVER (
    PARTITION BY source ORDER BY monotonic, apart ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
  FROM agreeing),
numbered AS (
  SELECT *, count(*) FILTER (abs(agreed - before) > 250000) OVER (
    PARTITION BY source ORDER BY monotonic, apart ROWS UNBOUNDED PRECEDING) AS piece FROM compared),
found AS (
  SELECT source, piece, min(monotonic) AS first,
         CAST(round_even(quantile_cont(apart, 0.5), 0) AS BIGINT) AS apart
  FROM numbered GROUP BY ALL)
SELECT source, apart, CASE WHEN piece = 0 THEN -4611686018427387904 ELSE first END AS first,
       lead(first, 1, 4611686018427387904) OVER (PARTITION BY source ORDER BY piece) AS until
FROM found;
CREATE TABLE events AS
SELECT * FROM (
  SELECT read.*, coalesce(apart + CAST(round_even(monotonic * 1e6, 0) AS BIGINT), wall) AS time
  FROM read LEFT JOIN pieces ON read.source = pieces.source
    AND CAST(round_even(monotonic * 1e6, 0) AS BIGINT) >= first
    AND CAST(round_even(monotonic * 1e6, 0) AS BIGINT) < until)
WHERE time IS NOT NULL
"""

_AS_OF = """
SELECT min(last) FROM (
  SELECT max(time) AS last, rank() OVER (ORDER BY max(time) DESC) AS place, count(*) OVER () AS processes
  FROM events GROUP BY source)
WHERE place <= greatest(2, ceil(processes / 100))"""

_TABLES = {
    "quarantine": "SELECT line FROM text WHERE NOT json_valid(line)",
    "episodes": """
WITH facts AS (
  SELECT client_id, instance, source, connection, outage,
         max(cluster) AS cluster, max(outage_id) AS outage_id, max(service) AS service,
         max(time) FILTER (type = 'lost') AS lost_at,
         max(monotonic) FILTER (type = 'lost') AS lost_clock,
         min(time) AS first_line_at,
         min(time - CAST(round(attempt_duration * 1e6) AS BIGINT)) FILTER (type = 'attempt')
           AS first_attempt_at,
         max(time) FILTER (type = 'connected') AS back_at,
         max(monotonic) FILTER (type = 'connected') AS back_clock,
         max(outage_duration) FILTER (type = 'connected') AS reported_duration,
         count(*) FILTER (type = 'attempt') AS attempts,
         count(*) FILTER (type = 'redirect') AS redirects,
         count(DISTINCT server_address || ':' || server_port) FILTER (type = 'attempt') AS members_tried,
         map_from_entries(list_sort(map_entries(histogram(error_type) FILTER (type = 'attempt'
                                                             AND error_type IS NOT NULL)))) AS reasons,
         max(reason) FILTER (type = 'lost') AS lost_reason,
         max(close_kind) FILTER (type = 'lost') AS lost_kind,
         count(retry_after) FILTER (type = 'backoff') AS retry_after_honored,
         count(*) FILTER (type = 'backoff') AS backoffs,
         sum(CAST(round_even(backoff_delay * 1e6, 0) AS BIGINT)) FILTER (type = 'backoff') / 1e6
           AS backoff_total,
         max(generation) FILTER (type = 'lost') AS generation_before,
         max(generation) FILTER (type = 'connected') AS generation_after,
         max(server_address || ':' || server_port) FILTER (type = 'lost') AS endpoint_before,
         max(server_address || ':' || server_port) FILTER (type = 'connected') AS endpoint_after,
         max(unsettled) FILTER (type = 'lost') AS unsettled,
         max(replayed) FILTER (type = 'connected') AS replayed,
         bool_or(type = 'gave_up') AS gave_up, bool_or(type = 'closed') AS closed,
         coalesce(bool_or(type = 'alive' AND state = 'connected'), false) AS said_connected,
         max(time) AS last_event_at, max(sequence) - min(sequence) AS span, count(*) AS lines
  FROM events WHERE client_id IS NOT NULL GROUP BY ALL),
lives AS (SELECT client_id, instance, source, min(first_line_at) AS began FROM facts GROUP BY ALL),
processes AS (SELECT instance, source, min(began) AS began FROM lives GROUP BY ALL),
known AS (
  SELECT facts.*, ({as_of}) AS as_of, coalesce(lost_at, first_line_at) AS began_at,
         greatest((SELECT max(began) FROM lives WHERE lives.client_id = facts.client_id),
                  (SELECT max(began) FROM processes WHERE processes.instance = facts.instance)) AS newest,
         back_at IS NOT NULL OR said_connected OR outage < max(outage) OVER
           (PARTITION BY client_id, instance, source, connection) AS back
  FROM facts),
ended AS (
  SELECT *,
         CASE WHEN back THEN 'back' WHEN gave_up THEN 'gave_up' WHEN closed THEN 'closed'
              WHEN newest > last_event_at OR last_event_at < as_of - 120000000 AND newest > began_at
              THEN 'replaced'
              WHEN last_event_at < as_of - 120000000 THEN 'silent' ELSE 'open' END AS episode_result
  FROM known)
SELECT cluster, client_id, connection, outage, outage_id, service, instance, outage = 1 AS first_connect,
       lost_at, began_at, first_attempt_at, back_at,
       CASE WHEN back_at IS NOT NULL
            THEN coalesce(round(back_clock - lost_clock, 6), reported_duration, (back_at - lost_at) / 1e6)
       END AS downtime,
       CASE WHEN back_at IS NULL THEN NULL
            WHEN coalesce(back_clock - lost_clock, reported_duration) IS NOT NULL THEN 'monotonic'
            WHEN lost_at IS NOT NULL THEN 'wall' END AS clock,
       attempts, redirects, members_tried, coalesce(reasons, MAP {}) AS reasons, lost_reason,
       lost_kind,
       retry_after_honored, backoffs, backoff_total, generation_before, generation_after,
       endpoint_before, endpoint_after, unsettled, replayed,
       episode_result,
       CASE WHEN episode_result IN ('gave_up', 'open', 'silent') THEN greatest((as_of - began_at) / 1e6, 0.0)
       END AS longer_than,
       outage = 1 AND NOT back AND as_of - began_at > 60000000 AS never_connected
FROM ended""",
    "lives": """
WITH episode AS (
  SELECT client_id, instance, source, connection, outage, max(cluster) AS cluster,
         max(time) FILTER (type = 'lost') AS lost_at, max(time) FILTER (type = 'connected') AS back_at,
         max(time) FILTER (type = 'closed') AS closed_at, min(time) AS first_at, max(time) AS last_at,
         coalesce(bool_or(type = 'alive' AND state = 'connected'), false) AS said
  FROM events WHERE client_id IS NOT NULL GROUP BY ALL),
ordered AS (
  SELECT *, max(cluster) OVER (PARTITION BY client_id, instance, source, connection) AS named,
         lag(outage) OVER life AS former, lead(outage) OVER life AS later,
         lead(lost_at) OVER life AS lost_next
  FROM episode WINDOW life AS (PARTITION BY client_id, instance, source, connection ORDER BY outage))
SELECT client_id, instance, connection, outage, coalesce(cluster, named, '?') AS place,
       lost_at // 1000 AS lost, lost_next // 1000 AS lost_next,
       CASE WHEN outage > 1 AND former IS NULL THEN 0 END AS was_there,
       coalesce(back_at, CASE WHEN said THEN first_at END, CASE WHEN later IS NOT NULL THEN last_at END)
         // 1000 AS came,
       CASE WHEN outage > 1 THEN coalesce(lost_at, first_at) // 1000 END AS gone, closed_at // 1000 AS closed
FROM ordered""",
    "heavy": """
WITH change AS (
  SELECT place, came AS moment, 1 AS live FROM lives WHERE came IS NOT NULL
  UNION ALL SELECT place, was_there, 1 FROM lives WHERE was_there IS NOT NULL
  UNION ALL SELECT place, gone + 1, -1 FROM lives WHERE gone IS NOT NULL
  UNION ALL SELECT place, closed + 1, -1 FROM lives WHERE came <= closed),
start AS (SELECT DISTINCT place, lost AS moment FROM lives WHERE lost IS NOT NULL),
counted AS (
  SELECT *, (SELECT sum(live) FROM change
             WHERE change.place = start.place AND change.moment <= start.moment) AS live,
         (SELECT count(DISTINCT (client_id, instance, connection)) FROM lives
          WHERE lives.place = start.place AND lost >= start.moment AND lost < start.moment + 5000) AS n
  FROM start)
SELECT * FROM counted WHERE n >= 5 AND 10 * n >= live""",
    "losses": """
WITH apart AS (
  SELECT *, coalesce(moment > 5000 + lag(moment) OVER (PARTITION BY place ORDER BY moment), true) AS begins
  FROM heavy),
numbered AS (
  SELECT *, count(*) FILTER (begins) OVER (PARTITION BY place ORDER BY moment) AS number FROM apart),
core AS (
  SELECT place, number, min(moment) AS begin, max(moment) + 5000 AS until, arg_min(live, moment) AS live
  FROM numbered GROUP BY ALL),
hit AS (
  SELECT core.*, lives.client_id, lives.instance, lives.connection, lives.outage, lost,
         coalesce(lost_next >= until, true) AS is_last
  FROM core JOIN lives ON core.place = lives.place AND lost >= begin AND lost < until),
fence AS (
  SELECT place, begin, quantile_cont(lost, 0.25) AS low, quantile_cont(lost, 0.75) AS high
  FROM hit GROUP BY ALL),
full_row AS (SELECT * FROM hit JOIN fence USING (place, begin)
             JOIN episodes USING (client_id, instance, connection, outage)),
storm AS (
  SELECT place, begin, min(lost_at) AS started_at FROM full_row
  WHERE lost >= low - 1.5 * (high - low) GROUP BY ALL)
SELECT full_row.*, started_at, least(started_at, lost_at) AS zero,
       place || '/' || (started_at // 1000) AS storm_id,
       CASE WHEN is_last THEN (lost_at - least(started_at, lost_at)) / 1e6 + downtime END AS back_after,
       is_last AND episode_result IN ('gave_up', 'open', 'silent') AS lasting
FROM full_row JOIN storm USING (place, begin)""",
    "extents": """
WITH ranked AS (
  SELECT storm_id, floor(back_after * 1000) AS cell, max(back_after) AS back_after,
         sum(count(*)) OVER (PARTITION BY storm_id ORDER BY floor(back_after * 1000)) AS so_far
  FROM losses WHERE back_after IS NOT NULL GROUP BY storm_id, cell),
whole AS (
  SELECT storm_id, max(cluster) AS cluster, started_at, max(live) AS live,
         count(*) FILTER (is_last) AS clients_hit, sum(attempts) AS attempts, max(back_after) AS last_back,
         count(back_after) + count(*) FILTER (lasting) AS judged,
         count(*) FILTER (is_last AND episode_result = 'back') AS back,
         count(*) FILTER (is_last AND episode_result = 'gave_up') AS gave_up,
         count(*) FILTER (is_last AND episode_result = 'closed') AS closed,
         count(*) FILTER (is_last AND episode_result = 'replaced') AS replaced,
         count(*) FILTER (is_last AND episode_result = 'open') AS open,
         count(*) FILTER (is_last AND episode_result = 'silent') AS silent,
         max(generation_before) AS generation_before, max(generation_after) AS generation_after,
         min(back_after) AS first_back
  FROM losses GROUP BY storm_id, started_at)
SELECT whole.*, ceil(judged * 99 / 100) AS needed,
       (SELECT min(back_after) FROM ranked r
        WHERE r.storm_id = whole.storm_id AND so_far >= ceil(judged * 50 / 100)) AS back_50,
       (SELECT min(back_after) FROM ranked r
        WHERE r.storm_id = whole.storm_id AND so_far >= ceil(judged * 90 / 100)) AS back_90,
       (SELECT min(back_after) FROM ranked r
        WHERE r.storm_id = whole.storm_id AND so_far >= ceil(judged * 99 / 100)) AS back_99,
       (SELECT min(back_after) FROM ranked r
        WHERE r.storm_id = whole.storm_id AND so_far >= judged) AS back_100,
       judged - (SELECT min(so_far) FROM ranked r
                 WHERE r.storm_id = whole.storm_id AND so_far >= ceil(judged * 99 / 100)) AS stragglers
FROM whole""",
    "marks": """
WITH line AS (
  SELECT *, CASE WHEN type = 'attempt' THEN CAST(round(attempt_duration * 1e6) AS BIGINT) ELSE 0 END AS took
  FROM events WHERE type IN ('attempt', 'connected')),
placed AS (
  SELECT l.storm_id, e.type, e.server_address, e.server_port, e.error_type, e.took,
         greatest(e.time - e.took - l.zero, 0) AS begun
  FROM line e JOIN losses l USING (client_id, instance, connection, outage))
SELECT *, CASE WHEN type = 'connected' THEN greatest((begun + 99999) // 100000 - 1, 0)
               ELSE begun // 100000 END AS tenth
FROM placed WHERE tenth <= 864000""",
    "seconds": """
WITH serves AS (
  SELECT storm_id, server_address, server_port FROM marks WHERE type = 'connected' GROUP BY ALL),
waiting AS (
  SELECT storm_id, unnest(generate_series(begun // 1000000, CASE WHEN took >= 1000000
                                          THEN (begun + took) // 1000000 ELSE begun // 1000000 END)) AS second
  FROM marks JOIN serves USING (storm_id, server_address, server_port)
  WHERE type = 'attempt' AND (took >= 1000000 OR error_type IS NOT NULL AND error_type NOT IN
                              ('made-room', 'lost-race', 'stopped'))),
made AS (SELECT storm_id, tenth // 10 AS second, count(*) FILTER (type = 'attempt') AS attempts,
                count(*) FILTER (type = 'connected') AS setups FROM marks GROUP BY ALL)
SELECT *, EXISTS (FROM waiting w WHERE w.storm_id = made.storm_id AND w.second = made.second) AS waits
FROM made""",
    "rates": """
WITH busy AS (
  SELECT *, second - row_number() OVER (PARTITION BY storm_id ORDER BY second) AS run
  FROM seconds JOIN (SELECT storm_id, max(setups) AS best FROM seconds GROUP BY ALL) USING (storm_id)
  WHERE waits AND setups > 0 AND 10 * setups >= 8 * best),
runs AS (SELECT storm_id, run, sum(setups) AS setups, avg(setups) AS rate FROM busy GROUP BY ALL
         HAVING count(*) >= 3)
SELECT storm_id, arg_max(rate, [setups, -run]) AS rate FROM runs GROUP BY ALL""",
    "storms": """
WITH tenths AS (SELECT storm_id, tenth, count(*) FILTER (type = 'attempt') AS n FROM marks GROUP BY ALL),
fine AS (SELECT storm_id, max(n) AS n FROM tenths GROUP BY ALL),
coarse AS (SELECT storm_id, max(attempts) AS attempts, max(setups) AS setups FROM seconds GROUP BY ALL),
judged AS (
  SELECT extents.*, rate, coalesce(fine.n, 0) AS peak_attempts_per_100ms,
         coalesce(coarse.attempts, 0) AS peak_attempts_per_second,
         coalesce(coarse.setups, 0) AS peak_setups_per_second,
         rate IS NOT NULL AND clients_hit >= 50 AND coalesce(back_99 >= needed / rate, true) AS saturated
  FROM extents LEFT JOIN fine USING (storm_id) LEFT JOIN coarse USING (storm_id)
  LEFT JOIN rates USING (storm_id))
SELECT storm_id, cluster, started_at, started_at + CAST(round_even(back_99 * 1e6, 0) AS BIGINT) AS ended_at,
       live, clients_hit, attempts, peak_attempts_per_second, peak_attempts_per_100ms, peak_setups_per_second,
       first_back, back_50, back_90, back_99, back_100, last_back, stragglers,
       back, gave_up, closed, replaced, open, silent,
       attempts / clients_hit AS amplification, saturated,
       CASE WHEN saturated THEN rate END AS setup_rate,
       CASE WHEN saturated THEN clients_hit / rate END AS ideal,
       CASE WHEN saturated THEN back_99 * rate / needed END AS ratio_to_ideal,
       generation_before, generation_after
FROM judged""",
    "storm_timeline": """
SELECT storm_id, tenth / 10 AS second, server_address, server_port,
       count(*) FILTER (type = 'attempt') AS attempts,
       count(*) FILTER (type = 'attempt' AND error_type IS NOT NULL) AS failures,
       count(*) FILTER (type = 'connected') AS connected
FROM marks GROUP BY ALL""",
    "storm_reasons": """
SELECT storm_id, (tenth // 10)::DOUBLE AS second, error_type, count(*) AS failures
FROM marks WHERE error_type IS NOT NULL GROUP BY ALL""",
    "jitter": """
WITH drawn AS (
  SELECT backoff_strategy AS strategy, least(backoff_round, 16) AS round, cluster,
         CASE WHEN backoff_strategy IN ('full', 'equal', 'exponential', 'constant') THEN backoff_base END
           AS backoff_base,
         backoff_delay / backoff_base AS ratio, time + CAST(round(backoff_delay * 1e6) AS BIGINT) AS wake,
         coalesce(backoff_base >= backoff_max AND backoff_delay > 0.95 * backoff_base, false) AS at_cap,
         coalesce(backoff_floor, CASE backoff_strategy WHEN 'full' THEN 0 WHEN 'equal' THEN backoff_base / 2
                                 END)
           AS floor,
         CASE WHEN floor < backoff_base
              THEN greatest(0, least(1, (backoff_delay - floor) / (backoff_base - floor))) END AS place
  FROM events WHERE type = 'backoff' AND retry_after IS NULL AND backoff_base > 0
                AND backoff_delay IS NOT NULL),
ranked AS (
  SELECT strategy, backoff_base, round, place,
         row_number() OVER (PARTITION BY strategy, backoff_base, round ORDER BY place) AS rank,
         count(*) OVER (PARTITION BY strategy, backoff_base, round) AS n FROM drawn WHERE place IS NOT NULL),
distances AS (SELECT strategy, backoff_base, round, n AS judged,
                     max(greatest(rank / n - place, place - (rank - 1) / n)) AS ks_statistic
              FROM ranked GROUP BY ALL),
cells AS (SELECT strategy, backoff_base, round, cluster, wake // 10000 AS cell, count(*) AS n
          FROM drawn GROUP BY ALL),
seconds AS (SELECT strategy, backoff_base, round, cluster, cell // 100 AS second, max(n) AS top, sum(n) AS n
            FROM cells GROUP BY ALL),
together AS (SELECT strategy, backoff_base, round,
                    sum(top) FILTER (n >= 20) / sum(n) FILTER (n >= 20) AS share
             FROM seconds GROUP BY ALL),
all_of AS (SELECT strategy, backoff_base, round, count(*) AS delays, avg(ratio) AS mean_ratio,
                  count(*) FILTER (at_cap) / count(*) AS at_cap_share FROM drawn GROUP BY ALL)
SELECT a.strategy, a.backoff_base, a.round, delays, coalesce(judged, 0) AS judged, mean_ratio, ks_statistic,
       share AS synchronisation_index, at_cap_share
FROM all_of a
JOIN together t ON a.strategy = t.strategy AND a.round = t.round
              AND a.backoff_base IS NOT DISTINCT FROM t.backoff_base
LEFT JOIN distances d ON a.strategy = d.strategy AND a.round = d.round
                      AND a.backoff_base IS NOT DISTINCT FROM d.backoff_base""",
    "flaps": """
WITH episode AS (
  SELECT client_id, instance, source, connection, outage, max(time) AS last_at,
         max(cluster) AS cluster, max(time) FILTER (type = 'lost') AS lost_at,
         max(server_address || ':' || server_port) FILTER (type = 'lost') AS lost_to,
         max(time) FILTER (type = 'connected') AS back_at,
         max(server_address || ':' || server_port) FILTER (type = 'connected') AS back_to,
         max(time) FILTER (type = 'closed') AS closed_at, min(time) AS first_at,
         bool_or(type = 'alive' AND state = 'connected') AS said,
         arg_max(server_address || ':' || server_port, sequence)
           FILTER (server_address IS NOT NULL) AS last_to
  FROM events WHERE client_id IS NOT NULL GROUP BY ALL),
step AS (
  SELECT *, coalesce(back_to, CASE WHEN said THEN last_to END, lead(lost_to) OVER (
                       PARTITION BY client_id, instance, source, connection ORDER BY outage)) AS there,
         coalesce(back_at, CASE WHEN said AND last_to IS NOT NULL THEN first_at END, last_at) AS arrived
  FROM episode),
near AS (
  SELECT *, lag(there) OVER life AS former FROM step
  WINDOW life AS (PARTITION BY client_id, instance, source, connection ORDER BY outage)),
change AS (
  SELECT cluster, there AS endpoint, arrived AS "at", 1 AS came, 0 AS lost, 0 AS gone
  FROM near
  UNION ALL SELECT cluster, coalesce(lost_to, former), coalesce(lost_at, first_at), 0, 1, 1 FROM near
            WHERE outage > 1
  UNION ALL SELECT cluster, there, closed_at, 0, 0, 1 FROM near),
cell AS (
  SELECT endpoint, "at" // 100000 AS cell, max(cluster) AS cluster, sum(came)::BIGINT AS came,
         sum(lost)::BIGINT AS lost, sum(gone)::BIGINT AS gone
  FROM change WHERE endpoint IS NOT NULL AND "at" IS NOT NULL GROUP BY ALL),
total AS (
  SELECT *, sum(came) OVER so_far AS came_so_far, sum(gone) OVER so_far AS gone_so_far,
         sum(lost) OVER (PARTITION BY endpoint ORDER BY cell
                         RANGE BETWEEN CURRENT ROW AND 49 FOLLOWING) AS soon
  FROM cell WINDOW so_far AS (PARTITION BY endpoint ORDER BY cell ROWS UNBOUNDED PRECEDING)),
watched AS (
  SELECT *, greatest(max(gone_so_far - came_so_far) OVER (PARTITION BY endpoint), 0)
            + came_so_far - gone_so_far + gone AS live FROM total),
heavy AS (
  SELECT *, came_so_far - came AS before FROM watched WHERE lost > 0 AND 2 * soon >= live),
compared AS (
  SELECT *, before - lag(before) OVER (PARTITION BY endpoint ORDER BY cell) AS arrived,
         cell - lag(cell) OVER (PARTITION BY endpoint ORDER BY cell) AS pause FROM heavy),
burst AS (
  SELECT *, count(*) OVER (PARTITION BY endpoint ORDER BY cell
                           RANGE BETWEEN CURRENT ROW AND 35999 FOLLOWING) AS score
  FROM compared WHERE arrived IS NULL OR pause >= 50 AND arrived > 0 OR 2 * arrived >= live)
SELECT endpoint, max(cluster) AS cluster, max(score) AS score, max(cell) * 100000 AS moment
FROM burst GROUP BY ALL""",
    "members": """
WITH seen AS (SELECT * FROM events WHERE server_address IS NOT NULL
              AND type IN ('attempt', 'connected', 'lost', 'redirect', 'alive')),
lost AS (SELECT endpoint_before AS endpoint, count(*) AS losses
         FROM episodes WHERE endpoint_before IS NOT NULL GROUP BY ALL),
base AS (
  SELECT server_address, server_port, count(*) FILTER (type = 'attempt') AS attempts,
         count(*) FILTER (type = 'attempt' AND error_type IS NULL) AS successes,
         count(*) FILTER (type = 'attempt' AND error_type IS NOT NULL) AS refusals,
         count(*) FILTER (type = 'redirect') AS redirects,
         coalesce(map_from_entries(list_sort(map_entries(histogram(error_type)
           FILTER (type = 'attempt' AND error_type IS NOT NULL)))), MAP {}) AS failures,
         quantile_cont(attempt_duration, [0.5, 0.9, 0.99])
           FILTER (type = 'attempt' AND error_type IS NULL) AS times,
         min(time) AS first_seen, max(time) AS last_seen,
         min(generation) FILTER (type = 'connected') AS generation_min,
         max(generation) FILTER (type = 'connected') AS generation_max
  FROM seen GROUP BY ALL)
SELECT server_address, server_port, attempts, successes, refusals, redirects, failures,
       successes / nullif(attempts, 0) AS success_rate,
       times[1] AS connect_p50, times[2] AS connect_p90, times[3] AS connect_p99, first_seen, last_seen,
       coalesce(losses, 0) AS losses,
       coalesce(score, 0) AS flapping_score,
       generation_min, generation_max
FROM base LEFT JOIN lost ON lost.endpoint = server_address || ':' || server_port
          LEFT JOIN flaps ON flaps.endpoint = server_address || ':' || server_port""",
    "steps": """
SELECT source, max(time) AS last,
       (max(time - CAST(round_even(monotonic * 1e6, 0) AS BIGINT))
        - min(time - CAST(round_even(monotonic * 1e6, 0) AS BIGINT))) / 1e6 AS step
FROM events WHERE source IS NOT NULL GROUP BY source""",
    "alarms": """
WITH claims AS (
  SELECT cluster, generation, server_address || ':' || server_port AS endpoint, min(time) AS since,
         max(time) AS until FROM events WHERE type = 'connected' AND generation IS NOT NULL GROUP BY ALL),
back AS (
  SELECT cluster, endpoint_after, generation_before, generation_after, min(back_at) AS moment, count(*) AS n
  FROM episodes WHERE generation_after < generation_before GROUP BY ALL),
per_connection AS (
  SELECT max(cluster) AS cluster, max(time) AS moment, max(sequence) - min(sequence) + 1 - count(*) AS missing
  FROM events WHERE client_id IS NOT NULL GROUP BY client_id, instance, connection),
gaps AS (SELECT cluster, max(moment) AS moment, sum(missing) AS missing, count(*) AS n
         FROM per_connection WHERE missing > 0 GROUP BY ALL)
SELECT 'split_claim' AS kind, a.cluster, greatest(a.since, b.since) AS "at",
       'both served under generation ' || a.generation || ' at the same time' AS detail,
       [a.endpoint, b.endpoint] AS endpoints
FROM claims a JOIN claims b ON a.cluster IS NOT DISTINCT FROM b.cluster AND a.generation = b.generation
     AND a.endpoint < b.endpoint AND a.until - b.since > 5000000 AND b.until - a.since > 5000000
UNION ALL
SELECT 'generation_backwards', cluster, moment, 'from generation ' || generation_before || ' back to '
       || generation_after || ', seen ' || n || ' times', [endpoint_after] FROM back
UNION ALL
SELECT 'lost_telemetry', cluster, moment, missing || ' lines are missing, of ' || n || ' connections', []
FROM gaps
UNION ALL
SELECT 'not_back', cluster, min(began_at),
       count(*) || ' connections are not back: ' || count(*) FILTER (episode_result = 'silent') || ' silent, '
       || count(*) FILTER (episode_result = 'gave_up') || ' gave up, '
       || count(*) FILTER (episode_result = 'open') || ' still searching', []
FROM episodes WHERE NOT first_connect
     AND (episode_result IN ('silent', 'gave_up') OR episode_result = 'open' AND longer_than > 60)
GROUP BY cluster
UNION ALL
SELECT 'never_connected', cluster, min(began_at), count(*) || ' connections were never there', []
FROM episodes WHERE never_connected GROUP BY cluster
UNION ALL
SELECT 'storm', cluster, started_at, clients_hit || ' connections were lost at once', [] FROM storms
UNION ALL
SELECT 'clock', NULL, max(last), count(*) || ' wall clocks were set while their process ran, by up to '
       || printf('%.1f', max(step)) || ' s', []
FROM steps WHERE step > 0.25 HAVING count(*) > 0
UNION ALL
SELECT 'clock', NULL, max(last), count(*) || ' processes were heard up to '
       || printf('%.1f', max(last - ({as_of})) / 1e6)
       || ' s later than all others: their clocks are fast, or the others are gone', []
FROM steps WHERE last - ({as_of}) > 60000000 HAVING count(*) > 0
UNION ALL
SELECT 'flapping', cluster, moment,
       score || ' times in an hour it lost at least half of its connections at once', [endpoint]
FROM flaps WHERE score >= 3""",
    "not_recovered": """
WITH last AS (
  SELECT client_id, instance, connection, outage, max(time) AS last_seen,
         arg_max(full_type, sequence) AS last_type,
         coalesce(arg_max(error_type, sequence) FILTER (explains),
                  arg_max(error_type, sequence) FILTER (error_type IS NOT NULL)) AS last_error,
         coalesce(arg_max(endpoint, sequence) FILTER (explains AND endpoint IS NOT NULL),
                  arg_max(endpoint, sequence) FILTER (endpoint IS NOT NULL)) AS last_endpoint,
         arg_max(state, sequence) FILTER (state IS NOT NULL) AS state
  FROM (SELECT *, server_address || ':' || server_port AS endpoint,
               error_type NOT IN ('redirected', 'lost-race', 'made-room', 'stopped') AS explains FROM events)
  GROUP BY ALL)
SELECT client_id, connection, service, instance, cluster, last_seen, last_type, last_error, last_endpoint,
       CASE WHEN episode_result = 'gave_up' THEN 'gave up'
             WHEN last_type = 'haclient.connection.lost' THEN 'lost'
            ELSE coalesce(state, 'reconnecting') END AS last_state, outage_id, episode_result, never_connected
FROM episodes JOIN last USING (client_id, instance, connection, outage)
WHERE episode_result IN ('gave_up', 'silent', 'open') AND outage > 1 OR never_connected""",
    "advice": """
WITH outage AS (
  SELECT cluster, coalesce(downtime, longer_than) AS seconds, downtime IS NULL AS lasting FROM episodes
  WHERE NOT first_connect AND coalesce(downtime, longer_than) IS NOT NULL),
known AS (SELECT cluster, count(*) AS n FROM outage GROUP BY ALL),
storm AS (SELECT cluster, bool_or(saturated) AS saturated FROM storms GROUP BY ALL),
used AS (SELECT cluster, max(backoff_max) AS backoff_max FROM events WHERE type = 'backoff' GROUP BY ALL)
SELECT known.cluster, 'accept_rate' AS parameter, NULL::DOUBLE AS current, NULL::DOUBLE AS proposed,
       'the configured rate is not known: pass it as --accept-rate' AS reason FROM known
UNION ALL
SELECT known.cluster, 'backoff_max', backoff_max, NULL,
       CASE WHEN saturated THEN 'there is no simulator here to replay a storm'
            ELSE 'no storm was saturated' END
FROM known LEFT JOIN storm ON known.cluster IS NOT DISTINCT FROM storm.cluster
           LEFT JOIN used ON known.cluster IS NOT DISTINCT FROM used.cluster
UNION ALL
SELECT cluster, 'deadline', NULL, NULL, '1,000 outages are needed, ' || n || ' found' FROM known""",
}

# on the way to the tables
STEPS = ("lives", "heavy", "losses", "extents", "marks", "seconds", "rates", "flaps", "steps")


def answers(files: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every table, from the JSON files that match the pattern."""
    with duckdb.connect() as connection:
        connection.execute(_READ.format(files=files, columns=", ".join(_columns())))
        for name, query in _TABLES.items():
            connection.execute(f"CREATE TABLE {name} AS {query.replace('{as_of}', _AS_OF)}")
        return {name: _rows(connection, name) for name in _TABLES if name not in STEPS}


def pattern(folder: Path) -> str:
    """Return the pattern of the files in a folder that Spark wrote."""
    return str(folder / "part-*")


def _columns() -> list[str]:
    kinds = {Type.LONG: "BIGINT", Type.DOUBLE: "DOUBLE", Type.BOOLEAN: "BOOLEAN", Type.STRING: "VARCHAR"}
    columns = [
        f"CAST(json_extract_string(line, '$.data.\"{key.name}\"') AS {kinds[key.type]}) AS {key.column}"
        for key in DATA
    ]
    return [
        "epoch_us(CAST(json_extract_string(line, '$.time') AS TIMESTAMPTZ)) AS wall",
        "json_extract_string(line, '$.source') AS source",
        "json_extract_string(line, '$.type') AS full_type",
        "split_part(json_extract_string(line, '$.type'), '.', 3) AS type",
        *columns,
    ]


def _rows(connection: duckdb.DuckDBPyConnection, table: str) -> list[dict[str, Any]]:
    found = connection.execute(f"FROM {table}")
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
