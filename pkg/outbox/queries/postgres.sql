-- Rows come as one JSON array: one text for batches of any size, so that it is prepared once.

-- name: EventInsert
INSERT INTO outbox_event (id, topic, message_key, payload, traceparent, wake_at, created_at)
SELECT c.id, c.topic, c.key, c.payload, c.traceparent, c.created, c.created
FROM ROWS FROM (json_to_recordset(CAST(? AS json)) AS (
  id text, topic text, key text, payload text, traceparent text, created timestamptz)) WITH ORDINALITY AS c (id, topic, key, payload, traceparent, created, place)
ORDER BY c.place
