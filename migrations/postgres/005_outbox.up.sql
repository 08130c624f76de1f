-- The transactional outbox of the Kafka road (contract §3, §5, design D5, D11).
-- An event is inserted in its task's own transaction and removed by retention; a relay sends it in between.

CREATE TABLE IF NOT EXISTS outbox_event (
  seq BIGINT GENERATED ALWAYS AS IDENTITY, -- the order of one task's events: they are made under its row lock
  id VARCHAR(36) COLLATE "C" NOT NULL, -- UUIDv7, the header event-id
  topic VARCHAR(249) NOT NULL,
  message_key VARCHAR(36) COLLATE "C" NOT NULL, -- the task's id
  payload TEXT NOT NULL,
  traceparent VARCHAR(64) NOT NULL DEFAULT '',
  status VARCHAR(16) NOT NULL DEFAULT 'NEW' CHECK (status IN ('NEW', 'RETRYING', 'SENT', 'DEAD')),
  cause VARCHAR(20) NOT NULL DEFAULT 'none' CHECK (cause IN ('none', 'BROKER_UNAVAILABLE', 'REFUSED')), -- of the failed attempts; one REFUSED among them counts
  attempt_count INTEGER NOT NULL DEFAULT 0,
  next_retry_at TIMESTAMPTZ NULL,
  last_error VARCHAR(2000) NULL,
  -- when somebody must look at this row: NEW created_at, RETRYING next_retry_at, either with a lease its end,
  -- SENT sent_at (retention), DEAD by an absent broker the time of its death (revival), other DEAD never
  wake_at TIMESTAMPTZ NOT NULL,
  lease VARCHAR(24) NOT NULL DEFAULT '', -- the relay's token of the lease that ends at wake_at; empty: none
  created_at TIMESTAMPTZ NOT NULL,
  sent_at TIMESTAMPTZ NULL,
  PRIMARY KEY (seq),
  CONSTRAINT outbox_event_retry CHECK ((status = 'RETRYING') = (next_retry_at IS NOT NULL)),
  CONSTRAINT outbox_event_sent CHECK (status <> 'SENT' OR (sent_at IS NOT NULL AND last_error IS NULL AND lease = ''))
) WITH (fillfactor = 85);
CREATE UNIQUE INDEX IF NOT EXISTS outbox_event_id ON outbox_event (id);
-- the one sweep index: one status by equality, then exactly this order
CREATE INDEX IF NOT EXISTS outbox_event_sweep ON outbox_event (status, wake_at, seq);
-- the events of one task (design D5)
CREATE INDEX IF NOT EXISTS outbox_event_key ON outbox_event (message_key, seq);
