package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

const (
	// lookAgain is when a SENT event of a task that is still QUEUED is looked at again: until then it does not stand in front
	// of those that may go.
	lookAgain = time.Hour
	// turnsOfAPass bounds one pass; the next one goes on.
	turnsOfAPass = 100
)

// JanitorConfig is what an operator sets of a Janitor.
type JanitorConfig struct {
	Topic     string        // INGEST_KAFKA_TOPIC: unsent events of it go when their task is over
	Retention time.Duration // OUTBOX_RETENTION_HOURS: how long SENT events are kept
	Interval  time.Duration // pause between two passes
}

// Janitor removes events that are of no more use: SENT ones after the retention, but not while their task is QUEUED (design
// D5 looks at them), and unsent ones of the ingest topic whose task is over and that no relay has leased (design D18), so
// that the backlog goes away without a relay too. Any number may run at once.
type Janitor struct {
	store *Store
	cfg   JanitorConfig
	log   *telemetry.Repeated
	from  map[Status]place // where the pass over unsent events goes on
}

// place is where a look at the sweep index goes on.
type place struct {
	at  time.Time
	seq int64
}

// NewJanitor makes a janitor; now is for its log.
func NewJanitor(s *Store, cfg JanitorConfig, log *slog.Logger, now func() time.Time) (*Janitor, error) {
	if cfg.Topic == "" || cfg.Retention <= 0 || cfg.Interval <= 0 {
		return nil, fmt.Errorf("outbox: janitor: topic %q, retention %s and interval %s must be given", cfg.Topic, cfg.Retention, cfg.Interval)
	}
	return &Janitor{store: s, cfg: cfg, log: telemetry.NewRepeated(log, time.Minute, now), from: map[Status]place{}}, nil
}

// Run passes every interval until ctx ends.
func (j *Janitor) Run(ctx context.Context) error {
	ticker := time.NewTicker(j.cfg.Interval)
	defer ticker.Stop()
	for {
		if _, err := j.Pass(ctx); err != nil && ctx.Err() == nil {
			j.log.Log(ctx, slog.LevelWarn, "pass", "outbox: retention", slog.String("error", telemetry.Redact(err.Error())))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Pass removes what may go and returns how many events that were.
func (j *Janitor) Pass(ctx context.Context) (int, error) {
	removed, err := j.sent(ctx)
	for _, status := range []Status{StatusNew, StatusRetrying, StatusDead} {
		n, uerr := j.unsent(ctx, status)
		removed += n
		err = errors.Join(err, uerr)
	}
	return removed, err
}

// judged is an event and what its task says of it.
type judged struct {
	place
	yes bool
}

// sent removes old SENT events.
func (j *Janitor) sent(ctx context.Context) (removed int, err error) {
	for range turnsOfAPass {
		rows, err := read(ctx, j.store.db, scanQueued, j.store.q.Get("SentBefore"), -j.cfg.Retention.Microseconds(), pageRows)
		if err != nil {
			return removed, wrap("old events", err)
		}
		keep, drop := split(rows)
		err = j.store.db.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) error {
			if len(keep) > 0 {
				if _, err := j.store.exec(ctx, tx, "SentLater", lists{seqs: keep}, (lookAgain - j.cfg.Retention).Microseconds()); err != nil {
					return err
				}
			}
			return j.remove(ctx, tx, "SentDelete", drop, &removed)
		}, again)
		if err != nil || len(rows) < pageRows {
			return removed, wrap("remove old events", err)
		}
	}
	return removed, nil
}

// unsent removes events of one status whose task is over, going on where the pass before ended.
func (j *Janitor) unsent(ctx context.Context, status Status) (removed int, err error) {
	for range turnsOfAPass {
		from := j.from[status]
		if from.at.IsZero() {
			from.at = beginning
		}
		rows, err := read(ctx, j.store.db, scanPlace, j.store.q.Get("UnsentAfter"),
			j.cfg.Topic, string(status), from.at, from.at, from.seq, pageRows)
		if err != nil {
			return removed, wrap("events of tasks that are over", err)
		}
		_, drop := split(rows)
		err = j.store.db.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) error {
			return j.remove(ctx, tx, "UnsentDelete", drop, &removed, string(status))
		}, again)
		if err != nil {
			return removed, wrap("remove events of tasks that are over", err)
		}
		if len(rows) < pageRows {
			delete(j.from, status)
			return removed, nil
		}
		j.from[status] = rows[len(rows)-1].place
	}
	return removed, nil
}

// beginning is before every event.
var beginning = time.Date(1970, 1, 1, 0, 0, 1, 0, time.UTC)

// never is the fixed date that stands for "none" in the sweep index.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// remove deletes events and counts those that were there.
func (j *Janitor) remove(ctx context.Context, tx taskstate.Tx, name string, seqs []int64, removed *int, args ...any) error {
	if len(seqs) == 0 {
		return nil
	}
	n, err := j.store.exec(ctx, tx, name, lists{seqs: seqs}, args...)
	*removed += n
	return err
}

// scanQueued reads a SENT event; one may go unless its task is QUEUED.
func scanQueued(rows *sql.Rows) (judged, error) {
	var e judged
	queued := false
	err := rows.Scan(&e.seq, &queued)
	e.yes = !queued
	return e, err
}

// scanPlace reads an unsent event with its place in the index.
func scanPlace(rows *sql.Rows) (judged, error) {
	var e judged
	var at taskstate.DBTime
	err := rows.Scan(&e.seq, &at, &e.yes)
	if e.at = at.Time; e.at.IsZero() {
		e.at = never
	}
	return e, err
}

// split parts those that may go from those that stay.
func split(rows []judged) (keep, drop []int64) {
	for _, e := range rows {
		if e.yes {
			drop = append(drop, e.seq)
		} else {
			keep = append(keep, e.seq)
		}
	}
	return keep, drop
}
