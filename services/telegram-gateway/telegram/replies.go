package telegram

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

//go:embed sql/*.sql
var statements embed.FS

// reply is what a chat is told of one of its messages. The message that tells it is edited, at most once a second.
type reply struct {
	chat    int64
	message int // the user's
	task    string
	name    string // of the file

	id     int    // the message that tells it; 0: none was sent
	shown  string // its text
	leased taskstate.DBTime
}

const (
	replyPage  = 200
	replyTick  = time.Second      // Telegram takes about one message a second for a chat
	replyLease = 30 * time.Second // more than a call may take
	replyKept  = 48 * time.Hour   // told ones: Telegram keeps an update for a day
	forgetEach = time.Hour
)

// replies tells chats what becomes of their messages. Rows are compared with tasks, so that no process has to remember any.
type replies struct {
	db    store
	q     sqldb.Queries
	api   *client
	log   *slog.Logger
	tick  time.Duration
	added chan struct{} // wakes the loop
}

// store is what replies need of the database.
type store interface {
	taskstate.DB
	GetMany(ctx context.Context, s taskstate.Scope, ids []string) ([]taskstate.Task, error)
}

func newReplies(db store, api *client, log *slog.Logger) *replies {
	return &replies{
		db: db, q: sqldb.MustLoad(statements, "sql", db.Dialect()), api: api, log: log, tick: replyTick, added: make(chan struct{}, 1),
	}
}

// add writes the row of a reply, unless it is there.
func (r *replies) add(ctx context.Context, x reply) error {
	crash.Point("telegram.after_accept")
	_, err := r.exec(ctx, "Add", x.chat, x.message, x.task, x.name)
	if err == nil {
		crash.Point("telegram.after_reply_row")
		select {
		case r.added <- struct{}{}:
		default:
		}
	}
	return err
}

// Run tells what there is to tell, until ctx ends.
func (r *replies) Run(ctx context.Context) error {
	waits := pause.Backoff{First: r.tick, Most: mostPause}
	forgotten := time.Time{}
	for ctx.Err() == nil {
		err := r.turn(ctx)
		if err == nil && time.Since(forgotten) >= forgetEach {
			_, err = r.exec(ctx, "Forget", -replyKept.Microseconds()) // told long ago
			forgotten = time.Now()
		}
		wait := r.tick
		if err == nil {
			waits.Reset()
		} else if ctx.Err() == nil {
			r.log.WarnContext(ctx, "telegram: replies wait", logged(err))
			wait = waits.Next()
		}
		if quiet := r.api.quiet(); quiet > 0 {
			pause.For(ctx, quiet)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-r.added:
		}
	}
	return nil
}

// turn tells what has changed since it was told.
func (r *replies) turn(ctx context.Context) error {
	after := reply{chat: math.MinInt64}
	for {
		rows, err := sqldb.Read(ctx, r.db, func(ctx context.Context, tx taskstate.Tx) ([]reply, error) {
			return sqldb.Collect(ctx, tx, scanReply, r.q.Get("Open"), after.chat, after.chat, after.message, replyPage)
		})
		if err != nil || len(rows) == 0 {
			return err
		}
		after = rows[len(rows)-1]
		ids := make([]string, len(rows))
		for i, x := range rows {
			ids[i] = x.task
		}
		tasks, err := r.read(ctx, ids)
		if err != nil {
			return err
		}
		for _, x := range rows {
			text, last := "Task "+x.task+" is not there any more.", true
			if t, there := tasks[x.task]; there {
				text, last = x.name+"\n"+line(t), t.Status.Terminal()
			}
			if text == x.shown && !last {
				continue
			}
			if err := r.tell(ctx, x, text, last); err != nil {
				return err
			}
		}
	}
}

// read reads the tasks that replies are about, by the ids in their rows. In the place of a workflow that has made a document stands the
// document's own task.
func (r *replies) read(ctx context.Context, ids []string) (map[string]taskstate.Task, error) {
	found, err := r.db.GetMany(ctx, taskstate.System(), ids)
	if err != nil {
		return nil, err
	}
	tasks, made := map[string]taskstate.Task{}, map[string]string{}
	for _, t := range found {
		tasks[t.ID] = t
		var taken workflows.Taken
		if t.Type == workflow.Type && t.Status == taskstate.StatusSucceeded && json.Unmarshal(t.Result, &taken) == nil && taken.TaskID != "" {
			made[taken.TaskID] = t.ID
		}
	}
	if len(made) == 0 {
		return tasks, nil
	}
	documents, err := r.db.GetMany(ctx, taskstate.System(), slices.Sorted(maps.Keys(made)))
	for _, t := range documents {
		tasks[made[t.ID]] = t
	}
	return tasks, err
}

func scanReply(rows *sql.Rows) (x reply, err error) {
	err = rows.Scan(&x.chat, &x.message, &x.task, &x.name, &x.id, &x.shown, &x.leased)
	return x, err
}

// tell sends or edits one reply, if no other process is at it.
func (r *replies) tell(ctx context.Context, x reply, text string, last bool) error {
	if r.api.quiet() > 0 {
		return errQuiet
	}
	mine, err := r.lease(ctx, x)
	if err != nil || !mine {
		return err
	}
	id := x.id
	ctx = context.WithoutCancel(ctx) // a call that was begun is heard to its end, for Telegram may have done it; it has its own limit
	if id == 0 {
		crash.Point("telegram.before_send")
		id, err = r.api.say(ctx, x.chat, x.message, text)
		crash.Point("telegram.after_send")
	} else {
		crash.Point("telegram.before_edit")
		if err = r.api.edit(ctx, x.chat, id, text); gone(err) && last { // it was deleted: its end is told anew
			id, err = r.api.say(ctx, x.chat, x.message, text)
		}
		crash.Point("telegram.after_edit")
	}
	switch {
	case gone(err):
		r.log.InfoContext(ctx, "telegram: a chat does not take a reply", slog.Int64("chat", x.chat), slog.String("task", x.task), logged(err))
	case err != nil:
		return errors.Join(err, r.write(ctx, x, x.id, x.shown, false)) // for the next turn
	}
	return r.write(ctx, x, id, text, last)
}

// errQuiet says that Telegram wants to hear nothing.
var errQuiet = errors.New("telegram asked for a pause")

// lease takes a reply for as long as a call may take; false: another process has it.
func (r *replies) lease(ctx context.Context, x reply) (mine bool, err error) {
	n, err := r.exec(ctx, "Lease", replyLease.Microseconds(), x.chat, x.message, x.leased.Time)
	return n == 1, err
}

// write says what a reply shows now, and ends its lease.
func (r *replies) write(ctx context.Context, x reply, id int, shown string, told bool) error {
	flag := 0
	if told {
		flag = 1
	}
	_, err := r.exec(ctx, "Shown", id, shown, flag, x.chat, x.message)
	return err
}

// exec runs a statement to its end, also when ctx ends meanwhile: what was sent is written down, and no lease is left behind.
func (r *replies) exec(ctx context.Context, name string, args ...any) (rows int64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	err = r.db.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		res, err := tx.ExecContext(ctx, r.q.Get(name), args...)
		if err == nil {
			rows, err = res.RowsAffected()
		}
		return err
	})
	return rows, err
}
