-- Named statements of the MySQL backend, in what MySQL 8 and MariaDB have in common: no RETURNING, no row aliases.
-- `clock` is the server's time in microseconds when the statement begins, or the time that a test gives.
-- Statements that stand together go to the server together, in one round trip.

-- name: stamp
-- The times of a record that was inserted just now, and is locked since. A first token is a time: were it read before, others
-- might insert, claim again and remove in between, and tokens could fall. (No record has the empty key.)
UPDATE {records} SET token = {clock}, expires_at = {clock} + %(lease)s, created_at = {clock}, updated_at = {clock}
WHERE namespace = %(namespace)s AND `key` = IF(ROW_COUNT() = 1, %(key)s, '')

-- name: begin
START TRANSACTION

-- name: end
COMMIT

-- name: claim
START TRANSACTION;
INSERT IGNORE INTO {records} (namespace, `key`, run_id, state, token, attempt, nonce, owner, lease, incarnation, fingerprint,
                              created_at, updated_at)
SELECT %(namespace)s, %(key)s, %(run_id)s, 'claimed', 0, 1, %(nonce)s, %(owner)s, %(lease)s, %(incarnation)s, %(fingerprint)s, 0, 0
FROM (SELECT 1) AS once
-- A duplicate would be refused as well, but only after it had been locked.
WHERE NOT EXISTS (SELECT 1 FROM {records} AS r WHERE r.namespace = %(namespace)s AND r.`key` = %(key)s);
{stamp};
SELECT {clock}, {columns} FROM {records} WHERE namespace = %(namespace)s AND `key` = %(key)s;
COMMIT

-- name: lock
START TRANSACTION;
SELECT {columns} FROM {records} WHERE namespace = %(namespace)s AND `key` = %(key)s FOR UPDATE;
SELECT {clock}

-- name: put
UPDATE {records} SET
  run_id = %(run_id)s, state = %(state)s, token = %(token)s, attempt = %(attempt)s, nonce = %(nonce)s, owner = %(owner)s,
  lease = %(lease)s, expires_at = %(expires_at)s, incarnation = %(incarnation)s, fingerprint = %(fingerprint)s,
  error = %(error)s, result = %(result)s, `blob` = %(blob)s, retain_until = %(retain_until)s, taken_from = %(taken_from)s,
  created_at = %(created_at)s, updated_at = %(updated_at)s
WHERE namespace = %(namespace)s AND `key` = %(key)s;
COMMIT

-- name: place
START TRANSACTION;
DELETE FROM {records}
WHERE namespace = %(namespace)s AND `key` = %(key)s AND state = 'committed' AND retain_until <= {clock} AND token < %(token)s;
INSERT INTO {records} (namespace, `key`, run_id, state, token, attempt, nonce, owner, lease, expires_at, incarnation,
                       fingerprint, error, result, `blob`, retain_until, taken_from, created_at, updated_at)
VALUES (%(namespace)s, %(key)s, %(run_id)s, %(state)s, %(token)s, %(attempt)s, %(nonce)s, %(owner)s, %(lease)s, %(expires_at)s,
        %(incarnation)s, %(fingerprint)s, %(error)s, %(result)s, %(blob)s, %(retain_until)s, %(taken_from)s, %(created_at)s,
        %(updated_at)s)
ON DUPLICATE KEY UPDATE {records}.`key` = {records}.`key`;
SELECT {columns} FROM {records} WHERE namespace = %(namespace)s AND `key` = %(key)s;
COMMIT

-- name: place_run
START TRANSACTION;
INSERT INTO {runs} (namespace, run_id, step, state, `blob`, incarnation, updated_at)
VALUES (%(namespace)s, %(run)s, %(step)s, %(run_state)s, %(run_blob)s, %(incarnation)s, %(updated_at)s)
ON DUPLICATE KEY UPDATE {runs}.run_id = {runs}.run_id;
SELECT {run_columns} FROM {runs} WHERE namespace = %(namespace)s AND run_id = %(run)s;
COMMIT

-- name: delete
-- One key in each: given many, the server may go through the whole table, and wait for the locks of others.
DELETE FROM {records} WHERE namespace = %(namespace)s AND `key` = %(key)s;
DELETE FROM {chunks} WHERE namespace = %(namespace)s AND `blob` = %(blob)s

-- name: record
SELECT {columns} FROM {records} WHERE namespace = %(namespace)s AND `key` = %(key)s

-- name: read
SELECT {clock}, {columns} FROM {records} WHERE namespace = %(namespace)s AND `key` IN %(keys)s

-- name: renew
UPDATE {records} SET lease = %(lease)s, expires_at = {clock} + %(lease)s, updated_at = {clock}
WHERE namespace = %(namespace)s AND `key` = %(key)s AND nonce = %(nonce)s AND state = 'claimed'

-- name: standing
SELECT nonce FROM {records} WHERE namespace = %(namespace)s AND `key` IN %(keys)s AND state IN ('claimed', 'committed')

-- name: commit
UPDATE {records} SET state = 'committed', result = %(result)s, `blob` = %(blob)s, error = NULL, expires_at = NULL,
  retain_until = {clock} + %(retain)s, updated_at = {clock}
WHERE namespace = %(namespace)s AND `key` = %(done_key)s AND nonce = %(done_nonce)s AND state = 'claimed'

-- name: remember_done
SET @durastore_done = ROW_COUNT()

-- name: advance_if_done
INSERT INTO {runs} (namespace, run_id, step, state, `blob`, incarnation, updated_at)
SELECT n.namespace, n.run_id, n.step, n.state, n.`blob`, 0, n.t
FROM (SELECT %(namespace)s AS namespace, %(run)s AS run_id, %(step)s AS step, %(run_state)s AS state, %(run_blob)s AS `blob`,
             {clock} AS t) AS n
WHERE @durastore_done = 1
ON DUPLICATE KEY UPDATE
  -- In this order: each assignment sees those before it.
  state = IF(VALUES(step) >= {runs}.step, VALUES(state), {runs}.state),
  `blob` = IF(VALUES(step) >= {runs}.step, VALUES(`blob`), {runs}.`blob`),
  updated_at = IF(VALUES(step) >= {runs}.step, VALUES(updated_at), {runs}.updated_at),
  step = GREATEST(VALUES(step), {runs}.step)

-- name: claim_if_done
INSERT IGNORE INTO {records} (namespace, `key`, run_id, state, token, attempt, nonce, owner, lease, incarnation, fingerprint,
                              created_at, updated_at)
SELECT %(namespace)s, %(key)s, %(run_id)s, 'claimed', 0, 1, %(nonce)s, %(owner)s, %(lease)s, %(incarnation)s, %(fingerprint)s, 0, 0
FROM (SELECT 1) AS once
WHERE @durastore_done = 1
  AND NOT EXISTS (SELECT 1 FROM {records} AS r WHERE r.namespace = %(namespace)s AND r.`key` = %(key)s);
{stamp}

-- name: look
SELECT {clock}, {columns} FROM {records} WHERE namespace = %(namespace)s AND `key` = %(key)s

-- name: abandon
UPDATE {records} SET state = %(state)s, error = %(error)s, expires_at = NULL, updated_at = {clock}
WHERE namespace = %(namespace)s AND `key` = %(key)s AND nonce = %(nonce)s AND state = 'claimed';
SELECT 1 FROM {records}
WHERE namespace = %(namespace)s AND `key` = %(key)s AND nonce = %(nonce)s AND state IN ('abandoned', 'in_doubt')

-- name: records
SELECT {clock}, {columns} FROM {records}
WHERE namespace = %(namespace)s AND `key` > %(cursor)s AND `key` >= %(first)s AND `key` < %(end)s ORDER BY `key` LIMIT %(limit)s

-- name: open_records
SELECT {clock}, {columns} FROM {records}
WHERE namespace = %(namespace)s AND is_open = 1 AND `key` > %(cursor)s AND `key` >= %(first)s AND `key` < %(end)s
ORDER BY `key` LIMIT %(limit)s

-- name: records_of_run
SELECT {clock}, {columns} FROM {records}
WHERE namespace = %(namespace)s AND run_id = %(run_id)s AND `key` > %(cursor)s AND `key` >= %(first)s AND `key` < %(end)s
ORDER BY `key` LIMIT %(limit)s

-- name: load
SELECT {run_columns} FROM {runs} WHERE namespace = %(namespace)s AND run_id = %(run)s

-- name: save
START TRANSACTION;
INSERT INTO {runs} (namespace, run_id, step, state, `blob`, incarnation, updated_at)
VALUES (%(namespace)s, %(run)s, %(step)s, %(run_state)s, %(run_blob)s, 0, {clock})
ON DUPLICATE KEY UPDATE
  -- In this order: each assignment sees those before it.
  state = IF(VALUES(step) >= step, VALUES(state), state),
  `blob` = IF(VALUES(step) >= step, VALUES(`blob`), `blob`),
  updated_at = IF(VALUES(step) >= step, VALUES(updated_at), updated_at),
  step = GREATEST(VALUES(step), step);
SELECT {run_columns} FROM {runs} WHERE namespace = %(namespace)s AND run_id = %(run)s;
COMMIT

-- name: incarnate
START TRANSACTION;
INSERT INTO {runs} (namespace, run_id, step, state, `blob`, incarnation, updated_at)
VALUES (%(namespace)s, %(run)s, 0, NULL, NULL, {clock}, {clock})
ON DUPLICATE KEY UPDATE incarnation = IF(incarnation = 0, VALUES(incarnation), incarnation + 1);
SELECT incarnation FROM {runs} WHERE namespace = %(namespace)s AND run_id = %(run)s;
COMMIT

-- name: delete_run
DELETE FROM {runs} WHERE namespace = %(namespace)s AND run_id = %(run)s

-- name: runs
SELECT {run_columns} FROM {runs} WHERE namespace = %(namespace)s AND run_id > %(cursor)s ORDER BY run_id LIMIT %(limit)s

-- name: put_chunk
INSERT INTO {chunks} (namespace, `blob`, number, data, written_at)
VALUES (%(namespace)s, %(blob)s, %(number)s, %(data)s, {clock})
ON DUPLICATE KEY UPDATE data = VALUES(data), written_at = VALUES(written_at)

-- name: chunks
SELECT data FROM {chunks} WHERE namespace = %(namespace)s AND `blob` = %(blob)s ORDER BY number

-- name: past_retention
START TRANSACTION;
SELECT `key`, `blob` FROM {records}
WHERE namespace = %(namespace)s AND retain_until <= {clock} AND state = 'committed' LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- name: orphans
SELECT c.`blob` FROM {chunks} AS c
WHERE c.namespace = %(namespace)s AND c.number = 0 AND c.written_at <= {clock} - %(age)s
  AND NOT EXISTS (SELECT 1 FROM {records} AS r WHERE r.namespace = c.namespace AND r.`blob` = c.`blob`)
  AND NOT EXISTS (SELECT 1 FROM {runs} AS m WHERE m.namespace = c.namespace AND m.`blob` = c.`blob`)
LIMIT %(limit)s

-- name: delete_chunks
DELETE FROM {chunks} WHERE namespace = %(namespace)s AND `blob` = %(blob)s

-- name: time
SELECT {clock}
