package taskstore_test

import (
	"context"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	pb "github.com/millweir/millweir/proto"
)

const outboxTopic = "ingest-tasks"

// dialectOf is the dialect of a database by its name in the tests.
func dialectOf(name string) string {
	dialect, _, _ := strings.Cut(name, "-")
	return dialect
}

// eventTimes reads when the deliveries of each task were made, in the order of their events.
func eventTimes(t require.TestingT, s *taskstore.Store) map[string][]time.Time {
	rows, err := s.Reader().QueryContext(context.Background(), "SELECT message_key, topic, payload, created_at FROM outbox_event ORDER BY seq")
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	out := map[string][]time.Time{}
	for rows.Next() {
		var key, topic string
		var payload []byte
		var created taskstate.DBTime
		require.NoError(t, rows.Scan(&key, &topic, &payload, &created))
		require.Equal(t, outboxTopic, topic)
		envelope, err := pb.Decode(payload)
		require.NoError(t, err)
		require.Equal(t, key, envelope.GetTaskId())
		require.True(t, envelope.GetUpdatedAt().AsTime().Equal(created.Time), "it was made with its row's change")
		out[key] = append(out[key], created.Time)
	}
	require.NoError(t, rows.Err())
	return out
}

// Whatever becomes of the answer to a COMMIT, each promise has one event, and is told of once.
func TestUnknownCommitWritesEventsOnce(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		for point, when := range cuts {
			t.Run(name+"/"+point, func(t *testing.T) {
				t.Parallel()
				cfg, rings := config(t), 0
				cfg.Outbox = outbox.NewWriter(name, outboxTopic, "ingest-workers").Write
				cfg.OnEvents = func() { rings++ }
				s := migrated(t, cfg)
				armed := cutNever
				s.Watch(func(query string, done bool) error {
					if query != "COMMIT" || armed == cutNever || done != (armed == cutAfter) {
						return nil
					}
					armed = cutNever
					return driver.ErrBadConn
				})
				faults(t, s, when, func(c cut) { armed = c })
				events := eventTimes(t, s)
				require.Len(t, events[idA], 3, "accepted, handed back, promised again")
				require.Len(t, events[idB], 1)
				require.Equal(t, 3, rings, "commits that wrote events")
			})
		}
	}
}
