-- Named statements of the PostgreSQL backend. One statement is one round trip and one transaction.
-- `clock` is the server's time in microseconds, or the time that a test gives.

-- name: claim
SELECT {columns}
FROM {claim}(%(namespace)s, %(key)s, %(run_id)s, %(owner)s, %(nonce)s, %(lease)s, %(takeover)s, %(fingerprint)s,
             %(incarnation)s, %(now)s)

-- name: commit
SELECT {done}(%(namespace)s, %(done_key)s, %(done_nonce)s, %(result)s, %(blob)s, %(retain)s, %(now)s)

-- name: commit_and_more
SELECT namespace, {columns}
FROM {commit}(%(namespace)s, %(done_key)s, %(done_nonce)s, %(result)s, %(blob)s, %(retain)s,
              %(run)s, %(step)s, %(run_state)s, %(run_blob)s,
              %(key)s, %(run_id)s, %(owner)s, %(nonce)s, %(lease)s, %(takeover)s, %(fingerprint)s, %(incarnation)s, %(now)s)

-- name: record
SELECT {columns} FROM {records} WHERE namespace = %(namespace)s AND key = %(key)s

-- name: lock_record
SELECT {clock}, {columns} FROM {records} WHERE namespace = %(namespace)s AND key = %(key)s FOR UPDATE

-- name: read
SELECT {clock}, {columns} FROM {records} WHERE namespace = %(namespace)s AND key = ANY(%(keys)s)

-- name: renew
UPDATE {records} AS r SET lease = a.lease, expires_at = {clock} + a.lease, updated_at = {clock}
FROM unnest(%(keys)s::text[], %(nonces)s::text[], %(leases)s::bigint[]) AS a (key, nonce, lease)
WHERE r.namespace = %(namespace)s AND r.key = a.key AND r.nonce = a.nonce AND r.state = 'claimed'
RETURNING r.nonce

-- name: committed
SELECT nonce FROM {records} WHERE namespace = %(namespace)s AND key = ANY(%(keys)s) AND state = 'committed'

-- name: abandon
UPDATE {records} SET state = %(state)s, error = %(error)s, expires_at = NULL, updated_at = {clock}
WHERE namespace = %(namespace)s AND key = %(key)s AND nonce = %(nonce)s AND state = 'claimed'
RETURNING true

-- name: given_back
SELECT true FROM {records}
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

-- name: place
INSERT INTO {records} AS r (namespace, {columns})
VALUES (%(namespace)s, %(key)s, %(run_id)s, %(state)s, %(token)s, %(attempt)s, %(nonce)s, %(owner)s, %(lease)s, %(expires_at)s,
        %(incarnation)s, %(fingerprint)s, %(error)s, %(result)s, %(blob)s, %(retain_until)s, %(taken_from)s, %(created_at)s,
        %(updated_at)s)
ON CONFLICT (namespace, key) DO UPDATE SET
  ({columns}) = ROW(excluded.key, excluded.run_id, excluded.state, excluded.token, excluded.attempt, excluded.nonce, excluded.owner,
    excluded.lease, excluded.expires_at, excluded.incarnation, excluded.fingerprint, excluded.error, excluded.result,
    excluded.blob, excluded.retain_until, excluded.taken_from, excluded.created_at, excluded.updated_at)
WHERE r.state = 'committed' AND r.retain_until <= {clock} AND r.token < excluded.token

-- name: placed
SELECT {columns} FROM {records} WHERE namespace = %(namespace)s AND key = ANY(%(keys)s)

-- name: place_run
INSERT INTO {runs} (namespace, run_id, step, state, blob, incarnation, updated_at)
VALUES (%(namespace)s, %(run)s, %(step)s, %(run_state)s, %(run_blob)s, %(incarnation)s, %(updated_at)s)
ON CONFLICT (namespace, run_id) DO NOTHING
RETURNING run_id, step, state, blob, incarnation, updated_at

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
