-- Everything that is compared is VARBINARY: byte for byte, no collation, no padding. Times and durations are microseconds.
-- MySQL commits each of these statements by itself, so each can be run again.

CREATE TABLE IF NOT EXISTS {records} (
  namespace    VARBINARY(64)   NOT NULL,
  `key`        VARBINARY(1024) NOT NULL,
  run_id       VARBINARY(1024) NOT NULL,
  state        VARBINARY(16)   NOT NULL,
  token        BIGINT          NOT NULL,
  attempt      BIGINT          NOT NULL,
  nonce        VARBINARY(255)  NOT NULL,
  owner        BLOB            NOT NULL,
  lease        BIGINT,
  expires_at   BIGINT,
  incarnation  BIGINT          NOT NULL,
  fingerprint  BLOB,
  error        MEDIUMBLOB,
  result       LONGBLOB,
  `blob`       VARBINARY(255),
  retain_until BIGINT,
  taken_from   BLOB,
  created_at   BIGINT          NOT NULL,
  updated_at   BIGINT          NOT NULL,
  -- What is not committed is little, and what people list.
  is_open      TINYINT AS (state <> 'committed') STORED,
  PRIMARY KEY (namespace, `key`),
  KEY {records_index}_by_run (namespace, run_id, `key`),
  KEY {records_index}_open (namespace, is_open, `key`),
  KEY {records_index}_retention (namespace, retain_until),
  KEY {records_index}_blob (namespace, `blob`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {runs} (
  namespace   VARBINARY(64)   NOT NULL,
  run_id      VARBINARY(1024) NOT NULL,
  step        BIGINT          NOT NULL,
  state       LONGBLOB,
  `blob`      VARBINARY(255),
  incarnation BIGINT          NOT NULL,
  updated_at  BIGINT          NOT NULL,
  PRIMARY KEY (namespace, run_id),
  KEY {runs_index}_blob (namespace, `blob`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE IF NOT EXISTS {chunks} (
  namespace  VARBINARY(64)  NOT NULL,
  `blob`     VARBINARY(255) NOT NULL,
  number     INTEGER        NOT NULL,
  data       LONGBLOB       NOT NULL,
  written_at BIGINT         NOT NULL,
  PRIMARY KEY (namespace, `blob`, number),
  KEY {chunks_index}_written (namespace, number, written_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
