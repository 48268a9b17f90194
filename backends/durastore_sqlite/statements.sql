-- Named statements of the SQLite backend. Parameters are positional; `namespace` comes first.

-- name: record
SELECT key, run_id, state, token, attempt, nonce, owner, lease, expires_at, incarnation, fingerprint, error, result, blob,
       retain_until, taken_from, created_at, updated_at
FROM durastore_records WHERE namespace = ? AND key = ?

-- name: put_record
INSERT INTO durastore_records (namespace, key, run_id, state, token, attempt, nonce, owner, lease, expires_at, incarnation,
                               fingerprint, error, result, blob, retain_until, taken_from, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, key) DO UPDATE SET
  run_id = excluded.run_id, state = excluded.state, token = excluded.token, attempt = excluded.attempt,
  nonce = excluded.nonce, owner = excluded.owner, lease = excluded.lease, expires_at = excluded.expires_at,
  incarnation = excluded.incarnation, fingerprint = excluded.fingerprint, error = excluded.error, result = excluded.result,
  blob = excluded.blob, retain_until = excluded.retain_until, taken_from = excluded.taken_from,
  created_at = excluded.created_at, updated_at = excluded.updated_at

-- name: add_record
INSERT INTO durastore_records (namespace, key, run_id, state, token, attempt, nonce, owner, lease, expires_at, incarnation,
                               fingerprint, error, result, blob, retain_until, taken_from, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, key) DO NOTHING

-- name: commit_record
UPDATE durastore_records
SET state = 'committed', result = ?, blob = ?, error = NULL, expires_at = NULL, retain_until = ?, updated_at = ?
WHERE namespace = ? AND key = ? AND nonce = ? AND state = 'claimed'

-- name: delete_record
DELETE FROM durastore_records WHERE namespace = ? AND key = ?

-- name: records
SELECT key, run_id, state, token, attempt, nonce, owner, lease, expires_at, incarnation, fingerprint, error, result, blob,
       retain_until, taken_from, created_at, updated_at
FROM durastore_records WHERE namespace = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?

-- name: records_of_run
SELECT key, run_id, state, token, attempt, nonce, owner, lease, expires_at, incarnation, fingerprint, error, result, blob,
       retain_until, taken_from, created_at, updated_at
FROM durastore_records WHERE namespace = ? AND key >= ? AND key < ? AND run_id = ? ORDER BY key LIMIT ?

-- name: open_records
SELECT key, run_id, state, token, attempt, nonce, owner, lease, expires_at, incarnation, fingerprint, error, result, blob,
       retain_until, taken_from, created_at, updated_at
FROM durastore_records INDEXED BY durastore_records_open
WHERE namespace = ? AND key >= ? AND key < ? AND state <> 'committed' ORDER BY key LIMIT ?

-- name: run
SELECT run_id, step, state, blob, incarnation, updated_at FROM durastore_runs WHERE namespace = ? AND run_id = ?

-- name: advance_run
INSERT INTO durastore_runs (namespace, run_id, step, state, blob, incarnation, updated_at) VALUES (?, ?, ?, ?, ?, 0, ?)
ON CONFLICT (namespace, run_id) DO UPDATE SET
  step = excluded.step, state = excluded.state, blob = excluded.blob, updated_at = excluded.updated_at
WHERE excluded.step >= step

-- name: put_run
INSERT INTO durastore_runs (namespace, run_id, step, state, blob, incarnation, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, run_id) DO UPDATE SET
  step = excluded.step, state = excluded.state, blob = excluded.blob, incarnation = excluded.incarnation,
  updated_at = excluded.updated_at

-- name: delete_run
DELETE FROM durastore_runs WHERE namespace = ? AND run_id = ?

-- name: runs
SELECT run_id, step, state, blob, incarnation, updated_at
FROM durastore_runs WHERE namespace = ? AND run_id > ? ORDER BY run_id LIMIT ?

-- name: put_chunk
INSERT OR REPLACE INTO durastore_chunks (namespace, blob, number, data, written_at) VALUES (?, ?, ?, ?, ?)

-- name: chunks
SELECT data FROM durastore_chunks WHERE namespace = ? AND blob = ? ORDER BY number

-- name: delete_chunks
DELETE FROM durastore_chunks WHERE namespace = ? AND blob = ?

-- name: past_retention
SELECT key, blob FROM durastore_records
WHERE namespace = ? AND retain_until IS NOT NULL AND retain_until <= ? AND state = 'committed' LIMIT ?

-- name: orphans
SELECT blob FROM durastore_chunks AS chunk
WHERE namespace = ? AND number = 0 AND written_at <= ?
  AND NOT EXISTS (SELECT 1 FROM durastore_records AS r WHERE r.namespace = chunk.namespace AND r.blob = chunk.blob)
  AND NOT EXISTS (SELECT 1 FROM durastore_runs AS r WHERE r.namespace = chunk.namespace AND r.blob = chunk.blob)
LIMIT ?
