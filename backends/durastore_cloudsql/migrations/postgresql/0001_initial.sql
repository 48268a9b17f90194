-- Keys and run ids collate "C": compared and ordered byte for byte. Times and durations are microseconds.

CREATE TABLE {records} (
  namespace    text   COLLATE "C" NOT NULL,
  key          text   COLLATE "C" NOT NULL,
  run_id       text   COLLATE "C" NOT NULL,
  state        text   COLLATE "C" NOT NULL,
  token        bigint NOT NULL,
  attempt      bigint NOT NULL,
  nonce        text   COLLATE "C" NOT NULL,
  owner        text   NOT NULL,
  lease        bigint,
  expires_at   bigint,
  incarnation  bigint NOT NULL,
  fingerprint  text,
  error        text,
  result       bytea,
  blob         text   COLLATE "C",
  retain_until bigint,
  taken_from   text,
  created_at   bigint NOT NULL,
  updated_at   bigint NOT NULL,
  PRIMARY KEY (namespace, key)
);

-- Not with the namespace first: before there are statistics, the planner would look up keys in it, going through all of them.
CREATE INDEX {records_index}_by_run ON {records} (run_id, namespace, key);

-- What is not committed is little, and what people list.
CREATE INDEX {records_index}_open ON {records} (namespace, key) WHERE state <> 'committed';

CREATE INDEX {records_index}_retention ON {records} (namespace, retain_until) WHERE retain_until IS NOT NULL;

CREATE INDEX {records_index}_blob ON {records} (namespace, blob) WHERE blob IS NOT NULL;

CREATE TABLE {runs} (
  namespace   text   COLLATE "C" NOT NULL,
  run_id      text   COLLATE "C" NOT NULL,
  step        bigint NOT NULL,
  state       bytea,
  blob        text   COLLATE "C",
  incarnation bigint NOT NULL,
  updated_at  bigint NOT NULL,
  PRIMARY KEY (namespace, run_id)
);

CREATE INDEX {runs_index}_blob ON {runs} (namespace, blob) WHERE blob IS NOT NULL;

CREATE TABLE {chunks} (
  namespace  text    COLLATE "C" NOT NULL,
  blob       text    COLLATE "C" NOT NULL,
  number     integer NOT NULL,
  data       bytea   NOT NULL,
  written_at bigint  NOT NULL,
  PRIMARY KEY (namespace, blob, number)
);

CREATE INDEX {chunks_index}_written ON {chunks} (namespace, written_at) WHERE number = 0;

-- The hot path is in functions: one round trip each, their plans kept by the session, whoever it serves behind a pooler.
-- At READ COMMITTED, each statement in them sees what was committed before it. No sequential scans: a plan that was made when the
-- table was empty is kept when it no longer is.

-- Returns the record as it is afterwards, with the time of the look as updated_at: it is granted when it is claimed under a_nonce.
-- Looks without a lock first, so that the answer for a key that is held or done writes nothing; what would be granted is locked
-- and looked at again.
CREATE OR REPLACE FUNCTION {claim}(
  a_namespace text, a_key text, a_run_id text, a_owner text, a_nonce text, a_lease bigint, a_takeover boolean,
  a_fingerprint text, a_incarnation bigint, a_now bigint)
RETURNS {records} LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS
$$
DECLARE
  r {records};
  t bigint;
  locked boolean := false;
BEGIN
  LOOP
    IF locked THEN
      SELECT * INTO r FROM {records} WHERE namespace = a_namespace AND key = a_key FOR UPDATE;
    ELSE
      SELECT * INTO r FROM {records} WHERE namespace = a_namespace AND key = a_key;
    END IF;
    IF r.key IS NULL THEN
      -- A first token is a time. Were it read before others can no longer insert, claim again and remove, tokens could fall.
      PERFORM pg_advisory_xact_lock(hashtextextended(a_key, hashtextextended(a_namespace, 0)));
      t := COALESCE(a_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
      INSERT INTO {records}
        (namespace, key, run_id, state, token, attempt, nonce, owner, lease, expires_at, incarnation, fingerprint, created_at,
         updated_at)
      VALUES (a_namespace, a_key, a_run_id, 'claimed', t, 1, a_nonce, a_owner, a_lease, t + a_lease, a_incarnation,
              a_fingerprint, t, t)
      ON CONFLICT DO NOTHING RETURNING * INTO r;  -- none at READ COMMITTED; above it, a serialization failure
      IF r.key IS NOT NULL THEN
        RETURN r;
      END IF;
      CONTINUE;
    END IF;
    t := COALESCE(a_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    IF r.nonce = a_nonce OR NOT COALESCE(
        r.state = 'abandoned'
        OR (r.state = 'committed' AND r.retain_until <= t)
        OR (r.state IN ('claimed', 'in_doubt') AND a_takeover AND COALESCE(r.fingerprint = a_fingerprint, true)
            AND (r.state = 'in_doubt' OR r.expires_at <= t OR (r.run_id = a_run_id AND r.incarnation < a_incarnation))), false)
    THEN
      r.updated_at := t;
      RETURN r;
    END IF;
    IF NOT locked THEN
      locked := true;
      CONTINUE;
    END IF;
    UPDATE {records} SET
      run_id = a_run_id, state = 'claimed', token = r.token + 1,
      attempt = CASE WHEN r.state = 'committed' THEN 1 ELSE r.attempt + 1 END,
      nonce = a_nonce, owner = a_owner, lease = a_lease, expires_at = t + a_lease, incarnation = a_incarnation,
      fingerprint = CASE WHEN r.state IN ('claimed', 'in_doubt') THEN COALESCE(a_fingerprint, r.fingerprint) ELSE a_fingerprint END,
      error = CASE WHEN r.state = 'committed' THEN NULL ELSE r.error END,
      result = NULL, blob = NULL, retain_until = NULL,
      taken_from = CASE WHEN r.state IN ('claimed', 'in_doubt') THEN r.owner END,
      created_at = CASE WHEN r.state = 'committed' THEN t ELSE r.created_at END,
      updated_at = t
    WHERE namespace = a_namespace AND key = a_key RETURNING * INTO r;
    RETURN r;
  END LOOP;
END
$$;

-- Whether the claim was ours, and is committed now.
CREATE OR REPLACE FUNCTION {done}(
  a_namespace text, a_key text, a_nonce text, a_result bytea, a_blob text, a_retain bigint, a_now bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS
$$
DECLARE
  t bigint := COALESCE(a_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
BEGIN
  UPDATE {records} SET
    state = 'committed', result = a_result, blob = a_blob, error = NULL, expires_at = NULL, retain_until = t + a_retain,
    updated_at = t
  WHERE namespace = a_namespace AND key = a_key AND nonce = a_nonce AND state = 'claimed';
  RETURN FOUND;
END
$$;

-- Result, progress (when a_run is given) and the next claim (when n_key is given), or nothing at all: then NULL is returned, else
-- the next key's record as it is afterwards, or a record without a key.
CREATE OR REPLACE FUNCTION {commit}(
  a_namespace text, a_key text, a_nonce text, a_result bytea, a_blob text, a_retain bigint,
  a_run text, a_step bigint, a_state bytea, a_state_blob text,
  n_key text, n_run_id text, n_owner text, n_nonce text, n_lease bigint, n_takeover boolean, n_fingerprint text,
  n_incarnation bigint, a_now bigint)
RETURNS {records} LANGUAGE plpgsql VOLATILE AS
$$
DECLARE
  r {records};
  t bigint := COALESCE(a_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
BEGIN
  IF NOT {done}(a_namespace, a_key, a_nonce, a_result, a_blob, a_retain, a_now) THEN
    RETURN NULL;
  END IF;
  r.namespace := a_namespace;
  IF a_run IS NOT NULL THEN
    INSERT INTO {runs} AS m (namespace, run_id, step, state, blob, incarnation, updated_at)
    VALUES (a_namespace, a_run, a_step, a_state, a_state_blob, 0, t)
    ON CONFLICT (namespace, run_id) DO UPDATE SET
      step = excluded.step, state = excluded.state, blob = excluded.blob, updated_at = excluded.updated_at
    WHERE excluded.step >= m.step;
  END IF;
  IF n_key IS NOT NULL THEN
    r := {claim}(
      a_namespace, n_key, n_run_id, n_owner, n_nonce, n_lease, n_takeover, n_fingerprint, n_incarnation, a_now);
  END IF;
  RETURN r;
END
$$;
