package kafka

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	relayWriters = 25
	relayRate    = 250 // events a second, all writers together
)

// TwoRelays lets two relays share what concurrent transactions of different lengths insert at 250 a second, and one of them is
// killed every few seconds. Every committed event is on the topic, none is left NEW, and only what was in flight at a kill is
// there again: the sum of duplicates is at most the sum of what was in flight.
func TwoRelays(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{}, "outbox-relay", "outbox-relay")
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	writing, stop := context.WithTimeout(ctx, s.Load)
	defer stop()
	committed := make(chan []string, 1)
	var writeErr error
	go func() {
		ids, err := writeEvents(ctx, writing, c.SQL.URL(""), c.Topic())
		writeErr = err
		committed <- ids
	}()
	var kills []map[string]bool
	for writing.Err() == nil {
		if !await.Pause(writing, time.Duration(2000+s.Random.IntN(2000))*time.Millisecond) {
			break
		}
		victim := c.Of("outbox-relay")[0]
		victim.Kill()
		c.Drop(victim)
		inFlight, err := tables.Leased(ctx, c.DB.Reader())
		if err != nil {
			return "", err
		}
		kills = append(kills, inFlight)
		if _, err := c.Add("outbox-relay"); err != nil {
			return "", err
		}
	}
	ids := <-committed
	if writeErr != nil {
		return "", writeErr
	}
	if err := c.OutboxSent(ctx, stage.DrainLimit); err != nil {
		return "", err
	}
	records, err := c.Records(ctx)
	if err != nil {
		return "", err
	}
	tried, err := attempts(ctx, c)
	if err != nil {
		return "", err
	}
	saw, err := eachOnce(ids, records, kills, tried)
	if err != nil {
		return "", err
	}
	if err := c.Documents(ctx, "ingest-api", "kafka-consumer", "reclaimer"); err != nil { // behind records that name no task of ours
		return "", err
	}
	return fmt.Sprintf("%d events of %d writers, each sent; %s", len(ids), relayWriters, saw), nil
}

// attempts are the failed attempts of each event: one that timed out may have arrived all the same.
func attempts(ctx context.Context, c *stage.Cluster) (map[string]int, error) {
	events, err := tables.Outbox(ctx, c.DB.Reader())
	out := map[string]int{}
	for _, e := range events {
		if e.Attempts > 0 {
			out[e.ID] = e.Attempts
		}
	}
	return out, err
}

// eachOnce compares what was committed with what is on the topic. A kill explains one more copy of each event that was in
// flight then, a failed attempt one more of its event: the sum of all copies beyond the first is at most theirs.
func eachOnce(ids []string, records map[string]int, kills []map[string]bool, tried map[string]int) (string, error) {
	if len(ids) == 0 {
		return "", errors.New("no event was committed")
	}
	lost, again, bound := 0, 0, 0
	var unexplained error
	for _, id := range ids {
		n, most := records[id], tried[id]
		for _, inFlight := range kills {
			if inFlight[id] {
				most++
			}
		}
		if n == 0 {
			lost++
		}
		if n-1 > most && unexplained == nil {
			unexplained = fmt.Errorf("event %s is on the topic %d times: it was in flight at kills and failed attempts %d times", id, n, most)
		}
		again += max(0, n-1)
		bound += most
	}
	switch {
	case lost > 0:
		return "", fmt.Errorf("%d of %d committed events are not on the topic", lost, len(ids))
	case len(records) != len(ids):
		return "", fmt.Errorf("%d events are on the topic, %d were committed", len(records), len(ids))
	case again > bound:
		return "", fmt.Errorf("%d events more than were committed are on the topic, %d were in flight at %d kills: %w", again, bound, len(kills), unexplained)
	case unexplained != nil:
		return "", unexplained
	case bound == 0:
		return "", fmt.Errorf("%d kills met no event in flight", len(kills))
	}
	return fmt.Sprintf("%d kills with %d events in flight, %d sent twice", len(kills), bound, again), nil
}

// writeEvents inserts events from concurrent transactions that stay open for different times, so that the order of
// numbers is not that of commits; a tenth is rolled back. It returns the ids that were committed.
func writeEvents(ctx, until context.Context, address, topic string) (ids []string, err error) {
	db, err := taskstore.Open(ctx, taskstore.Config{DatabaseURL: address, MaxOpen: relayWriters})
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // every commit was answered
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range relayWriters {
		wg.Go(func() {
			for until.Err() == nil {
				id, kept, one := writeEvent(ctx, db.DB(), topic)
				mu.Lock()
				if kept {
					ids = append(ids, id)
				}
				err = errors.Join(err, one)
				mu.Unlock()
				if one != nil {
					return
				}
				await.Pause(until, time.Duration(rand.Int64N(int64(2*time.Second)*relayWriters/relayRate))) //nolint:gosec // a wait
			}
		})
	}
	wg.Wait()
	return ids, err
}

// writeEvent is one transaction.
func writeEvent(ctx context.Context, db *sql.DB, topic string) (id string, kept bool, err error) {
	v7, err := uuid.NewV7()
	if err != nil {
		return "", false, err
	}
	id = v7.String()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", false, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO outbox_event (id, topic, message_key, payload, wake_at, created_at)
		VALUES (?, ?, ?, ?, NOW(6), NOW(6))`, id, topic, id, `{"schemaVersion":1,"taskId":"`+id+`"}`)
	if err != nil {
		return "", false, errors.Join(err, tx.Rollback())
	}
	await.Pause(ctx, time.Duration(rand.Int64N(int64(60*time.Millisecond)))) //nolint:gosec // a wait
	if rand.IntN(10) == 0 {                                                  //nolint:gosec // a choice
		return id, false, tx.Rollback()
	}
	return id, true, tx.Commit()
}
