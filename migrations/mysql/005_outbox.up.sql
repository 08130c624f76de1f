-- The transactional outbox of the Kafka road (contract §3, §5, design D5, D11).
-- An event is inserted in its task's own transaction and removed by retention; a relay sends it in between.

CREATE TABLE IF NOT EXISTS outbox_event (
  seq BIGINT NOT NULL AUTO_INCREMENT, -- the order of one task's events: they are made under its row lock
  id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- UUIDv7, the header event-id
  topic VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  message_key VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- the task's id
  payload MEDIUMTEXT NOT NULL,
  traceparent VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  status ENUM('NEW', 'RETRYING', 'SENT', 'DEAD') NOT NULL DEFAULT 'NEW',
  cause ENUM('none', 'BROKER_UNAVAILABLE', 'REFUSED') NOT NULL DEFAULT 'none', -- of the failed attempts; one REFUSED among them counts
  attempt_count INT NOT NULL DEFAULT 0,
  next_retry_at DATETIME(6) NULL,
  last_error VARCHAR(2000) NULL,
  -- when somebody must look at this row: NEW created_at, RETRYING next_retry_at, either with a lease its end,
  -- SENT sent_at (retention), DEAD by an absent broker the time of its death (revival), other DEAD never
  wake_at DATETIME(6) NOT NULL,
  lease CHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', -- the relay's token of the lease that ends at wake_at; empty: none
  created_at DATETIME(6) NOT NULL,
  sent_at DATETIME(6) NULL,
  PRIMARY KEY (seq),
  UNIQUE KEY outbox_event_id (id),
  -- the one sweep index: one status by equality, then exactly this order
  KEY outbox_event_sweep (status, wake_at, seq),
  -- the events of one task (design D5)
  KEY outbox_event_key (message_key, seq),
  CONSTRAINT outbox_event_retry CHECK ((status = 'RETRYING') = (next_retry_at IS NOT NULL)),
  CONSTRAINT outbox_event_sent CHECK (status <> 'SENT' OR (sent_at IS NOT NULL AND last_error IS NULL AND lease = ''))
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
