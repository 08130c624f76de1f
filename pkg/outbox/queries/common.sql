-- The outbox. Every look reads one status by equality in the order of the index outbox_event_sweep, so that several relays
-- get disjoint rows and nothing else waits (design D3). (@seqs), (@tokens) and (@rows) are lists of ?.

-- name: Due
SELECT e.seq, e.id, e.topic, e.message_key, e.payload, e.traceparent, e.cause, e.attempt_count, e.created_at, @now
FROM outbox_event AS e @force(outbox_event_sweep)
WHERE e.status = ? AND e.wake_at <= @now
ORDER BY e.wake_at, e.seq
LIMIT ?
@skiplocked

-- Two things in one statement: events that carry one of the tokens were acknowledged, the others (locked by Due) get a lease.
-- A mark leaves a row whose lease is not this relay's any more. lease stands last: assignments may run from left to right.
-- name: Turn
UPDATE outbox_event @force(PRIMARY)
SET
  status = CASE WHEN lease IN (@tokens) THEN 'SENT' ELSE status END,
  cause = CASE WHEN lease IN (@tokens) THEN 'none' ELSE cause END,
  next_retry_at = CASE WHEN lease IN (@tokens) THEN NULL ELSE next_retry_at END,
  last_error = CASE WHEN lease IN (@tokens) THEN NULL ELSE last_error END,
  sent_at = CASE WHEN lease IN (@tokens) THEN @now ELSE sent_at END,
  wake_at = CASE WHEN lease IN (@tokens) THEN @now ELSE @in(?) END,
  lease = CASE WHEN lease IN (@tokens) THEN '' ELSE ? END
WHERE (seq IN (@rows) AND lease IN (@tokens) AND status IN ('NEW', 'RETRYING'))
   OR seq IN (@seqs)

-- name: MarkRetrying
UPDATE outbox_event @force(PRIMARY)
SET status = 'RETRYING', cause = ?, attempt_count = ?, last_error = ?, next_retry_at = @in(?), wake_at = @in(?), lease = ''
WHERE seq IN (@rows)
  AND lease IN (@tokens)
  AND status IN ('NEW', 'RETRYING')

-- Who died of an absent broker is looked at again, who was refused never (by himself).
-- name: MarkDead
UPDATE outbox_event @force(PRIMARY)
SET status = 'DEAD', cause = ?, attempt_count = ?, last_error = ?, next_retry_at = NULL, lease = '',
  wake_at = CASE WHEN ? = 'REFUSED' THEN @never ELSE @now END
WHERE seq IN (@rows)
  AND lease IN (@tokens)
  AND status IN ('NEW', 'RETRYING')

-- Waits for the end of the transaction before: its rows are locked.
-- name: Leased
SELECT seq
FROM outbox_event @force(PRIMARY)
WHERE seq IN (@seqs) AND lease = ?
@forupdate

-- name: NextWake
SELECT e.wake_at, @now
FROM outbox_event AS e @force(outbox_event_sweep)
WHERE e.status = ?
ORDER BY e.wake_at, e.seq
LIMIT 1

-- name: Revivable
SELECT e.seq
FROM outbox_event AS e @force(outbox_event_sweep)
WHERE e.status = 'DEAD' AND e.wake_at <= @now
ORDER BY e.wake_at, e.seq
LIMIT ?
@skiplocked

-- name: Revive
UPDATE outbox_event @force(PRIMARY)
SET status = 'NEW', cause = 'none', attempt_count = 0, next_retry_at = NULL, last_error = NULL, lease = '', wake_at = created_at
WHERE seq IN (@seqs) AND status = 'DEAD'

-- Tasks are read without a lock: a task that is queued again meanwhile has a newer event.
-- name: SentBefore
SELECT e.seq, CASE WHEN t.status = 'QUEUED' THEN 1 ELSE 0 END
FROM outbox_event AS e @force(outbox_event_sweep)
LEFT JOIN ingest_task AS t ON t.id = e.message_key
WHERE e.status = 'SENT' AND e.wake_at < @in(?)
ORDER BY e.wake_at, e.seq
LIMIT ?

-- name: SentDelete
DELETE FROM outbox_event
WHERE seq IN (@seqs) AND status = 'SENT'

-- name: SentLater
UPDATE outbox_event @force(PRIMARY)
SET wake_at = @in(?)
WHERE seq IN (@seqs) AND status = 'SENT'

-- name: UnsentAfter
SELECT e.seq, e.wake_at, CASE WHEN e.topic = ? AND t.status IN ('SUCCEEDED', 'DEAD', 'CANCELLED') THEN 1 ELSE 0 END
FROM outbox_event AS e @force(outbox_event_sweep)
LEFT JOIN ingest_task AS t ON t.id = e.message_key
WHERE e.status = ? AND e.wake_at >= ? AND (e.wake_at > ? OR e.seq > ?)
ORDER BY e.wake_at, e.seq
LIMIT ?

-- name: UnsentDelete
DELETE FROM outbox_event
WHERE seq IN (@seqs) AND status = ? AND (lease = '' OR wake_at <= @now)

-- name: CountUpTo
SELECT COUNT(*)
FROM (SELECT e.wake_at FROM outbox_event AS e @force(outbox_event_sweep) WHERE e.status = ? LIMIT ?) AS c

-- name: OldestOf
SELECT MIN(c.created_at), @now
FROM (SELECT e.created_at FROM outbox_event AS e @force(outbox_event_sweep) WHERE e.status = ? ORDER BY e.wake_at, e.seq LIMIT ?) AS c

-- name: ListColumns
SELECT e.seq, e.id, e.topic, e.message_key, e.traceparent, e.status, e.cause, e.attempt_count, e.next_retry_at, e.last_error,
  e.created_at, e.sent_at, e.wake_at

-- name: ListByState
FROM outbox_event AS e @force(outbox_event_sweep)
WHERE e.status = ?

-- name: ListByTask
FROM outbox_event AS e @force(outbox_event_key)
WHERE e.message_key = ?

-- name: ListCause
  AND e.cause = ?

-- name: ListStatus
  AND e.status = ?

-- The refused stand at the index's end, all others before it.
-- name: ListRefused
  AND e.wake_at = @never

-- name: ListRevivable
  AND e.wake_at < @never

-- name: ListTopic
  AND e.topic = ?

-- name: ListBefore
  AND (e.wake_at < ? OR (e.wake_at = ? AND e.seq < ?))

-- name: ListBeforeSeq
  AND e.seq < ?

-- name: ListOrder
ORDER BY e.wake_at DESC, e.seq DESC
LIMIT ?

-- name: ListOrderSeq
ORDER BY e.seq DESC
LIMIT ?

-- name: ByID
FROM outbox_event AS e
WHERE e.id = ?

-- name: PayloadOf
SELECT e.payload
FROM outbox_event AS e
WHERE e.seq = ?

-- What follows runs inside the transactions of tasks, after their locks; the relay locks no task.
-- An event is NEW, and wakes at its birth. The time is the row's own: the task says the same instant.
-- name: EventInsert
INSERT INTO outbox_event (id, topic, message_key, payload, traceparent, wake_at, created_at)
VALUES (@rows:7)

-- What the deliveries of tasks came to (design D5), read under the tasks' locks; a task has few events, and the index finds them.
-- name: EventTrails
SELECT message_key, seq, status, sent_at
FROM outbox_event AS e @force(outbox_event_key)
WHERE message_key IN (@list) AND topic = ?

-- Dead letters that no relay has sent or leased (design D11); one status by equality, and the sweep index's order.
-- name: LettersUnsent
SELECT seq, message_key, payload
FROM outbox_event AS e @force(outbox_event_sweep)
WHERE status = ? AND topic = ? AND (lease = '' OR wake_at <= @now)
ORDER BY wake_at, seq
LIMIT ?

-- Those of them that are still so; what a relay has locked is about to be leased.
-- name: LettersLock
SELECT seq
FROM outbox_event @force(PRIMARY)
WHERE seq IN (@list) AND status <> 'SENT' AND (lease = '' OR wake_at <= @now)
ORDER BY seq
@skiplocked

-- name: LettersDrop
DELETE FROM outbox_event
WHERE seq IN (@list) AND status <> 'SENT' AND (lease = '' OR wake_at <= @now)
