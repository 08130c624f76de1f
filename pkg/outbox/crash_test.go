package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstore"
)

const (
	victimVar  = "OUTBOX_TEST_VICTIM" // the database of a relay that kills itself
	journalVar = "OUTBOX_TEST_JOURNAL"
)

// suicidal writes what it took into a file, as a broker would keep it, and kills its process before it answers.
type suicidal struct{ journal string }

func (s suicidal) Send(_ context.Context, events []outbox.Event) []outbox.Result {
	f, err := os.OpenFile(s.journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	for _, e := range events {
		_, _ = fmt.Fprintln(f, e.ID)
	}
	_ = f.Sync()
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (suicidal) Probe(context.Context) error { return nil }

// TestVictim is not a test: it is the relay that the tests below kill.
func TestVictim(t *testing.T) {
	if os.Getenv(victimVar) == "" {
		return
	}
	cfg := taskstore.Config{DatabaseURL: os.Getenv(victimVar)}
	if !strings.Contains(cfg.DatabaseURL, ":/") {
		cfg = taskstore.Config{MySQLDSN: cfg.DatabaseURL}
	}
	tasks, err := taskstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	relay := outbox.NewDefaultConfig()
	relay.Lease, relay.BatchSize = time.Second, 100
	r, err := outbox.NewRelay(relay, outbox.Deps{
		Store: outbox.NewStore(tasks), Sender: suicidal{os.Getenv(journalVar)}, Log: slog.New(slog.DiscardHandler), Clock: time.Now,
	})
	require.NoError(t, err)
	require.NoError(t, r.Run(t.Context()))
}

func TestRelayKilledBetweenSendAndMark(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(testing.TB) string{"mariadb": labserver.MySQLDatabase, "postgres": labserver.PostgresDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := address(t)
			w := open(t, at)
			ids := w.insert(many(250)...)
			const kills = 2
			journal := filepath.Join(t.TempDir(), "journal")
			for range kills {
				child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVictim$")
				child.Env = append(os.Environ(), victimVar+"="+at, journalVar+"="+journal)
				err := child.Run()
				require.ErrorContains(t, err, "killed")
			}
			require.Zero(t, w.count(outbox.StatusSent), "nothing was marked")
			require.Positive(t, w.number("SELECT COUNT(*) FROM outbox_event WHERE lease <> ''"))
			b := newBroker()
			w.start(b, nil)
			eventually(t, "all sent", func() bool { return w.count(outbox.StatusSent) == len(ids) })
			text, err := os.ReadFile(journal)
			require.NoError(t, err)
			before := map[string]int{}
			for _, id := range strings.Fields(string(text)) {
				before[id]++
			}
			for _, id := range ids {
				require.Equal(t, 1, b.times(id), "none is skipped")
				require.LessOrEqual(t, before[id], kills, "at most one duplicate a crash")
			}
		})
	}
}
