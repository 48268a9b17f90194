-- Named statements of the PostgreSQL backend. One statement is one round trip and one transaction.
-- `clock` is the server's time in microseconds, or the time that a test gives.

-- name: _free
COALESCE(r.nonce <> %(nonce)s::text AND (
    r.state = 'abandoned'
    OR (r.state = 'committed' AND r.retain_until <= {clock})
    OR (r.state IN ('claimed', 'in_doubt') AND %(takeover)s::boolean
        AND COALESCE(r.fingerprint = %(fingerprint)s::text, true)
        AND (r.state = 'in_doubt' OR r.expires_at <= {clock}
             OR (r.run_id = %(run_id)s::text AND r.incarnation < %(incarnation)s::bigint)))), false)

-- name: _granted
granted AS (
  INSERT INTO {records} AS r
    (namespace, key, run_id, state, token, attempt, nonce, owner, lease, expires_at, incarnation, fingerprint, error, result,
     blob, retain_until, taken_from, created_at, updated_at)
  SELECT %(namespace)s::text, %(key)s::text, %(run_id)s::text, 'claimed', {clock}, 1, %(nonce)s::text, %(owner)s::text,
         %(lease)s::bigint, {clock} + %(lease)s::bigint, %(incarnation)s::bigint, %(fingerprint)s::text, NULL, NULL, NULL,
         NULL::bigint, NULL, {clock}, {clock}
  WHERE {condition} AND NOT EXISTS (  -- an INSERT that is refused locks the row, which is a write
    SELECT 1 FROM {records} AS r WHERE namespace = %(namespace)s::text AND key = %(key)s::text AND NOT {free})
  ON CONFLICT (namespace, key) DO UPDATE SET
    run_id = excluded.run_id, state = 'claimed', token = r.token + 1,
    attempt = CASE WHEN r.state = 'committed' THEN 1 ELSE r.attempt + 1 END,
    nonce = excluded.nonce, owner = excluded.owner, lease = excluded.lease, expires_at = {clock} + excluded.lease,
    incarnation = excluded.incarnation,
    fingerprint = CASE WHEN r.state IN ('claimed', 'in_doubt') THEN COALESCE(excluded.fingerprint, r.fingerprint)
                       ELSE excluded.fingerprint END,
    error = CASE WHEN r.state = 'committed' THEN NULL ELSE r.error END,
    result = NULL, blob = NULL, retain_until = NULL,
    taken_from = CASE WHEN r.state IN ('claimed', 'in_doubt') THEN r.owner END,
    created_at = CASE WHEN r.state = 'committed' THEN {clock} ELSE r.created_at END,
    updated_at = {clock}
  WHERE {free}
  RETURNING {columns}
)

-- name: _done
done AS (
  UPDATE {records} SET state = 'committed', result = %(result)s, blob = %(blob)s, error = NULL, expires_at = NULL,
    retain_until = {clock} + %(retain)s::bigint, updated_at = {clock}
  WHERE namespace = %(namespace)s AND key = %(done_key)s AND nonce = %(done_nonce)s AND state = 'claimed'
  RETURNING 1
)

-- name: _advanced
advanced AS (
  INSERT INTO {runs} AS m (namespace, run_id, step, state, blob, incarnation, updated_at)
  SELECT %(namespace)s::text, %(run)s::text, %(step)s::bigint, %(run_state)s::bytea, %(run_blob)s::text, 0, {clock} FROM done
  ON CONFLICT (namespace, run_id) DO UPDATE SET
    step = excluded.step, state = excluded.state, blob = excluded.blob, updated_at = excluded.updated_at
  WHERE excluded.step >= m.step
)

-- name: claim
WITH {granted}
SELECT true, {clock}, {columns} FROM granted
UNION ALL
SELECT false, {clock}, {columns} FROM {records}
WHERE namespace = %(namespace)s AND key = %(key)s AND NOT EXISTS (SELECT 1 FROM granted)

-- name: commit
WITH {done} SELECT (SELECT count(*) FROM done)

-- name: commit_advancing
WITH {done}, {advanced} SELECT (SELECT count(*) FROM done)

-- name: commit_claiming
WITH {done}, {granted_if_done} SELECT (SELECT count(*) FROM done), g.* FROM (SELECT 1) AS one LEFT JOIN granted AS g ON true

-- name: commit_advancing_claiming
WITH {done}, {advanced}, {granted_if_done}
SELECT (SELECT count(*) FROM done), g.* FROM (SELECT 1) AS one LEFT JOIN granted AS g ON true

-- name: record
SELECT {columns} FROM {records} WHERE namespace = %(namespace)s AND key = %(key)s

-- name: lock_record
SELECT {clock}, {columns} FROM {records} WHERE namespace = %(namespace)s AND key = %(key)s FOR UPDATE

-- name: read
SELECT {clock}, {columns} FROM {records} WHERE namespace = %(namespace)s AND key = ANY(%(keys)s)

-- name: renew
WITH asked AS (
  SELECT * FROM unnest(%(keys)s::text[], %(nonces)s::text[], %(leases)s::bigint[]) AS a (key, nonce, lease)
), renewed AS (
  UPDATE {records} AS r SET lease = a.lease, expires_at = {clock} + a.lease, updated_at = {clock}
  FROM asked AS a
  WHERE r.namespace = %(namespace)s AND r.key = a.key AND r.nonce = a.nonce AND r.state = 'claimed'
  RETURNING r.nonce
)
SELECT nonce FROM renewed
UNION
SELECT r.nonce FROM {records} AS r JOIN asked AS a ON r.key = a.key AND r.nonce = a.nonce
WHERE r.namespace = %(namespace)s AND r.state = 'committed'

-- name: abandon
WITH given_back AS (
  UPDATE {records} SET state = %(state)s, error = %(error)s, expires_at = NULL, updated_at = {clock}
  WHERE namespace = %(namespace)s AND key = %(key)s AND nonce = %(nonce)s AND state = 'claimed'
  RETURNING 1
)
SELECT 1 FROM given_back
UNION ALL
SELECT 1 FROM {records}
WHERE namespace = %(namespace)s AND key = %(key)s AND nonce = %(nonce)s AND state IN ('abandoned', 'in_doubt')

-- name: settle
UPDATE {records} SET state = %(state)s, nonce = %(nonce)s, result = %(result)s, blob = %(blob)s, error = %(error)s,
  expires_at = %(expires_at)s, retain_until = %(retain_until)s, updated_at = %(updated_at)s
WHERE namespace = %(namespace)s AND key = %(key)s

-- name: delete_record
DELETE FROM {records} WHERE namespace = %(namespace)s AND key = %(key)s

-- name: records
SELECT {clock}, {columns} FROM {records}
WHERE namespace = %(namespace)s AND key > %(cursor)s AND key >= %(first)s AND key < %(end)s ORDER BY key LIMIT %(limit)s

-- name: open_records
SELECT {clock}, {columns} FROM {records}
WHERE namespace = %(namespace)s AND key > %(cursor)s AND key >= %(first)s AND key < %(end)s AND state <> 'committed'
ORDER BY key LIMIT %(limit)s

-- name: records_of_run
SELECT {clock}, {columns} FROM {records}
WHERE namespace = %(namespace)s AND run_id = %(run_id)s AND key > %(cursor)s AND key >= %(first)s AND key < %(end)s
ORDER BY key LIMIT %(limit)s

-- name: load
SELECT run_id, step, state, blob, incarnation, updated_at FROM {runs} WHERE namespace = %(namespace)s AND run_id = %(run)s

-- name: save
INSERT INTO {runs} AS m (namespace, run_id, step, state, blob, incarnation, updated_at)
VALUES (%(namespace)s, %(run)s, %(step)s, %(run_state)s, %(run_blob)s, 0, {clock})
ON CONFLICT (namespace, run_id) DO UPDATE SET
  step = excluded.step, state = excluded.state, blob = excluded.blob, updated_at = excluded.updated_at
WHERE excluded.step >= m.step
RETURNING run_id, step, state, blob, incarnation, updated_at

-- name: incarnate
INSERT INTO {runs} AS m (namespace, run_id, step, state, blob, incarnation, updated_at)
VALUES (%(namespace)s, %(run)s, 0, NULL, NULL, {clock}, {clock})
ON CONFLICT (namespace, run_id) DO UPDATE SET
  incarnation = CASE WHEN m.incarnation = 0 THEN {clock} ELSE m.incarnation + 1 END
RETURNING incarnation

-- name: delete_run
DELETE FROM {runs} WHERE namespace = %(namespace)s AND run_id = %(run)s RETURNING 1

-- name: runs
SELECT run_id, step, state, blob, incarnation, updated_at FROM {runs}
WHERE namespace = %(namespace)s AND run_id > %(cursor)s ORDER BY run_id LIMIT %(limit)s

-- name: put_chunk
INSERT INTO {chunks} (namespace, blob, number, data, written_at)
VALUES (%(namespace)s, %(blob)s, %(number)s, %(data)s, {clock})
ON CONFLICT (namespace, blob, number) DO UPDATE SET data = excluded.data, written_at = excluded.written_at

-- name: chunks
SELECT data FROM {chunks} WHERE namespace = %(namespace)s AND blob = %(blob)s ORDER BY number

-- name: delete_chunks
DELETE FROM {chunks} WHERE namespace = %(namespace)s AND blob = %(blob)s

-- name: sweep_records
WITH due AS (
  SELECT key FROM {records}
  WHERE namespace = %(namespace)s AND retain_until IS NOT NULL AND retain_until <= {clock} AND state = 'committed'
  LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM {records} AS r USING due WHERE r.namespace = %(namespace)s AND r.key = due.key RETURNING r.blob
), freed AS (
  DELETE FROM {chunks} AS c USING gone WHERE c.namespace = %(namespace)s AND c.blob = gone.blob
)
SELECT count(*) FROM gone

-- name: sweep_chunks
WITH orphan AS (
  SELECT blob FROM {chunks} AS c
  WHERE namespace = %(namespace)s AND number = 0 AND written_at <= {clock} - %(age)s
    AND NOT EXISTS (SELECT 1 FROM {records} AS r WHERE r.namespace = c.namespace AND r.blob = c.blob)
    AND NOT EXISTS (SELECT 1 FROM {runs} AS m WHERE m.namespace = c.namespace AND m.blob = c.blob)
  LIMIT %(limit)s
), gone AS (
  DELETE FROM {chunks} AS c USING orphan WHERE c.namespace = %(namespace)s AND c.blob = orphan.blob
)
SELECT count(*) FROM orphan

-- name: time
SELECT {clock}
