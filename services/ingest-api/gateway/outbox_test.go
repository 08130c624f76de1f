package gateway

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/operators"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// noEvents is an empty outbox.
type noEvents struct{}

func (noEvents) Stats(context.Context, ...outbox.Status) (outbox.Stats, error) {
	return outbox.Stats{Counts: map[outbox.Status]int64{}}, nil
}
func (noEvents) List(context.Context, outbox.Query) ([]outbox.Item, error) { return nil, nil }
func (noEvents) Get(context.Context, string) (outbox.Item, error) {
	return outbox.Item{}, outbox.ErrNotFound
}
func (noEvents) Requeue(context.Context, string, taskstate.TxFunc) error { return outbox.ErrNotFound }
func (noEvents) RequeueAll(context.Context, outbox.Query, int, taskstate.TxFunc) (int, error) {
	return 0, nil
}

// deadEvents is an outbox with n DEAD events, every second one refused, and one that is NEW.
func deadEvents(t *testing.T, n int) (*outbox.Store, string) {
	t.Helper()
	store := taskstoretest.Open(t)
	fresh := ""
	require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		for i := range n + 1 {
			id := uuid.Must(uuid.NewV7()).String()
			status, cause, wake := "DEAD", "BROKER_UNAVAILABLE", any(m.Now)
			switch {
			case i == n:
				status, cause, fresh = "NEW", "none", id
			case i%2 == 0:
				cause, wake = "REFUSED", "9999-12-31 00:00:00.000000"
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO outbox_event (id, topic, message_key, payload, status, cause, attempt_count, last_error, wake_at, created_at)
				VALUES (?, 'ingest-tasks', ?, '{"taskId":"x"}', ?, ?, 3, 'too large', ?, ?)`, id, fmt.Sprintf("task-%d", i), status, cause, wake, m.Now); err != nil {
				return err
			}
		}
		return nil
	}))
	return outbox.NewStore(store), fresh
}

func TestOutboxOfOperators(t *testing.T) {
	t.Parallel()
	events, fresh := deadEvents(t, 7)
	b := newBench(t, func(_ *Config, d *Deps) { d.Outbox = events })
	stats := decode[wire.OutboxStats](t, b.get(operator, "/internal/outbox"))
	require.Equal(t, map[string]int64{"NEW": 1, "RETRYING": 0, "SENT": 0, "DEAD": 7}, stats.Counts)
	require.Equal(t, int64(1), stats.Backlog)

	var ids []string
	path := "/internal/outbox/events?limit=3"
	for next := path; next != ""; {
		page := decode[wire.List[wire.OutboxEvent]](t, b.get(operator, next))
		for _, e := range page.Items {
			require.Equal(t, string(outbox.StatusDead), e.Status)
			ids = append(ids, e.ID)
		}
		next = ""
		if page.HasMore {
			next = path + "&cursor=" + string(page.NextCursor)
		}
	}
	require.Len(t, ids, 7)
	require.Len(t, decode[wire.List[wire.OutboxEvent]](t, b.get(operator, "/internal/outbox/events?cause=REFUSED")).Items, 4)
	require.Len(t, decode[wire.List[wire.OutboxEvent]](t, b.get(operator, "/internal/outbox/events?state=NEW")).Items, 1)
	require.Len(t, decode[wire.List[wire.OutboxEvent]](t, b.get(operator, "/internal/outbox/events?taskId=task-3")).Items, 1)
	b.refused(b.get(operator, "/internal/outbox/events?state=LOST"), http.StatusBadRequest, web.CodeInvalidParameter)
	b.refused(b.get(operator, "/internal/outbox/events?cursor=x"), http.StatusBadRequest, web.CodeBadCursor)
	foreign := web.Cursor{List: "outbox:DEAD", At: operators.LatestEvent + 1, ID: "1"}.Encode()
	b.refused(b.get(operator, "/internal/outbox/events?cursor="+foreign), http.StatusBadRequest, web.CodeBadCursor)

	one := decode[wire.OneOutboxEvent](t, b.get(operator, "/internal/outbox/events/"+ids[0]))
	require.JSONEq(t, `{"taskId":"x"}`, string(one.Payload))
	done := decode[wire.OutboxEvent](t, b.send(operator, http.MethodPost, "/internal/outbox/events/"+ids[0]+"/requeue", ""))
	require.Equal(t, string(outbox.StatusNew), done.Status)
	require.Zero(t, done.AttemptCount)
	require.Equal(t, audit.EventRequeue, b.trail.events[0].Action)
	require.Equal(t, ids[0], b.trail.events[0].Target)
	b.refused(b.send(operator, http.MethodPost, "/internal/outbox/events/"+fresh+"/requeue", ""), http.StatusConflict, web.CodeEventNotDead)
	b.refused(b.send(operator, http.MethodPost, "/internal/outbox/events/"+uuid.NewString()+"/requeue", ""), http.StatusNotFound, web.CodeEventNotFound)

	some := decode[wire.RequeuedEvents](t, b.send(operator, http.MethodPost, "/internal/outbox/requeue", `{"cause":"REFUSED","limit":2}`))
	require.Equal(t, wire.RequeuedEvents{Requeued: 2, More: true}, some)
	rest := decode[wire.RequeuedEvents](t, b.send(operator, http.MethodPost, "/internal/outbox/requeue", ""))
	require.Equal(t, wire.RequeuedEvents{Requeued: 4}, rest)
	b.refused(b.send(operator, http.MethodPost, "/internal/outbox/requeue", `{"cause":"none"}`), http.StatusUnprocessableEntity, web.CodeInvalidField)
	b.refused(b.send(operator, http.MethodPost, "/internal/outbox/requeue", `{"limit":-1}`), http.StatusUnprocessableEntity, web.CodeInvalidField)

	without := newBench(t, func(_ *Config, d *Deps) { d.Outbox = nil })
	without.refused(without.get(operator, "/internal/outbox"), http.StatusNotFound, web.CodeNotFound)
}
