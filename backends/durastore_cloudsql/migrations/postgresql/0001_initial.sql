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

CREATE INDEX {records_index}_by_run ON {records} (namespace, run_id, key);

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
