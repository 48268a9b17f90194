-- Keys and run ids are TEXT under SQLite's BINARY collation: compared byte for byte. Times and durations are microseconds.

CREATE TABLE durastore_records (
  namespace    TEXT    NOT NULL,
  key          TEXT    NOT NULL,
  run_id       TEXT    NOT NULL,
  state        TEXT    NOT NULL,
  token        INTEGER NOT NULL,
  attempt      INTEGER NOT NULL,
  nonce        TEXT    NOT NULL,
  owner        TEXT    NOT NULL,
  lease        INTEGER,
  expires_at   INTEGER,
  incarnation  INTEGER NOT NULL,
  fingerprint  TEXT,
  error        TEXT,
  result       BLOB,
  blob         TEXT,
  retain_until INTEGER,
  taken_from   TEXT,
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  PRIMARY KEY (namespace, key)
) WITHOUT ROWID;

CREATE INDEX durastore_records_by_run ON durastore_records (namespace, run_id, key);

-- What is not committed is little, and what people list.
CREATE INDEX durastore_records_open ON durastore_records (namespace, key) WHERE state <> 'committed';

CREATE INDEX durastore_records_retention ON durastore_records (namespace, retain_until) WHERE retain_until IS NOT NULL;

CREATE INDEX durastore_records_blob ON durastore_records (namespace, blob) WHERE blob IS NOT NULL;

CREATE TABLE durastore_runs (
  namespace   TEXT    NOT NULL,
  run_id      TEXT    NOT NULL,
  step        INTEGER NOT NULL,
  state       BLOB,
  blob        TEXT,
  incarnation INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  PRIMARY KEY (namespace, run_id)
) WITHOUT ROWID;

CREATE INDEX durastore_runs_blob ON durastore_runs (namespace, blob) WHERE blob IS NOT NULL;

CREATE TABLE durastore_chunks (
  namespace  TEXT    NOT NULL,
  blob       TEXT    NOT NULL,
  number     INTEGER NOT NULL,
  data       BLOB    NOT NULL,
  written_at INTEGER NOT NULL,
  PRIMARY KEY (namespace, blob, number)
);

CREATE INDEX durastore_chunks_written ON durastore_chunks (namespace, written_at) WHERE number = 0;
