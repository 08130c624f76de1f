package taskstore_test

import (
	"context"
	"database/sql"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// relay passes connections on until it forgets them: they stay open, and nothing comes through any more.
type relay struct {
	addr, to string
	mu       sync.Mutex
	links    []net.Conn // to the server
	ends     []net.Conn // to the client
	done     sync.WaitGroup
	turns    atomic.Int64 // how often something came from a client
}

// counting counts what is read.
type counting struct {
	io.Reader
	turns *atomic.Int64
}

// Read implements io.Reader.
func (c counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if n > 0 {
		c.turns.Add(1)
	}
	return n, err
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{addr: l.Addr().String(), to: to}
	r.done.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			r.link(client)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.forget()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, c := range r.ends {
			_ = c.Close()
		}
		r.done.Wait()
	})
	return r
}

// link passes all that comes, either way.
func (r *relay) link(client net.Conn) {
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", r.to)
	if err != nil {
		_ = client.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links, r.ends = append(r.links, server), append(r.ends, client)
	r.done.Go(func() { _, _ = io.Copy(server, counting{client, &r.turns}) })
	r.done.Go(func() { _, _ = io.Copy(client, server) })
}

// forget cuts off the server's side only.
func (r *relay) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.links {
		_ = c.Close()
	}
	r.links = nil
}

// behindRelay is a store on a server behind a relay.
func behindRelay(t *testing.T, name string, cfg taskstore.Config) (*taskstore.Store, *relay) {
	t.Helper()
	if name == "postgres" {
		addr := labserver.Postgres(t).Addr
		r := newRelay(t, addr)
		cfg.DatabaseURL = strings.Replace(labserver.PostgresDatabase(t), addr, r.addr, 1)
		return migrated(t, cfg), r
	}
	dsn, err := driver.ParseDSN(labserver.MySQLDatabase(t))
	require.NoError(t, err)
	r := newRelay(t, dsn.Addr)
	dsn.Addr, dsn.Net = r.addr, "tcp"
	cfg.MySQLDSN = dsn.FormatDSN()
	return migrated(t, cfg), r
}

// A transaction asks once for what it needs to know, and sends all that it writes with its COMMIT: each further turn would be
// paid by every task with the way to the server and back. Postgres is told BEGIN in a turn of its own.
func TestWritesGoWithTheirCommit(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{"mysql": 2, "postgres": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, r := behindRelay(t, name, taskstore.Config{MaxOpen: 1})
			s.TrustLocks()
			turns := func(f func()) int64 {
				before := r.turns.Load()
				f()
				return r.turns.Load() - before
			}
			for _, id := range []string{idA, idB} { // with the first one the process has its number, and the pool a connection that knows the statements
				submit := turns(func() {
					_, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
						return []taskstate.NewTask{newTask(id)}, nil
					})
					require.NoError(t, err)
				})
				take := turns(func() {
					outs, err := s.Apply(t.Context(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(claim)})
					require.NoError(t, err)
					require.Equal(t, taskstate.StatusRunning, outs[0].After.Status)
				})
				m, err := s.Moment(t.Context())
				require.NoError(t, err)
				held, err := s.GetMany(t.Context(), taskstate.System(), []string{id})
				require.NoError(t, err)
				beats := []taskstate.Beat{{TaskID: id, Token: taskstate.Token{Fence: held[0].Fence, Epoch: m.Epoch}}}
				finish := turns(func() {
					var asked [][]taskstate.Task
					_, err := s.Apply(t.Context(), heldBatch(beats, held, &asked))
					require.NoError(t, err)
				})
				requireEnded(t, s, id)
				if id == idB {
					require.Equal(t, [3]int64{want, want, want}, [3]int64{submit, take, finish}, "submit, claim, finish")
				}
			}
		})
	}
}

// Found by the drill main-halfopen: after a firewall had forgotten all connections, each statement waited out its limit on
// one dead connection of the pool after the other.
func TestOneTimeoutEmptiesAPoolOfDeadConnections(t *testing.T) {
	t.Parallel()
	const idle = 6
	s, r := behindRelay(t, "mysql", taskstore.Config{MaxOpen: idle, Timeout: 5 * time.Second})
	conns := make([]*sql.Conn, 2*idle)
	var err error
	for i := range conns {
		pool := s.DB()
		if i < idle {
			pool = s.TxPool()
		}
		conns[i], err = pool.Conn(t.Context())
		require.NoError(t, err)
	}
	for _, c := range conns {
		require.NoError(t, c.Close()) // back into the pool
	}
	require.Equal(t, idle, s.Stats().Idle)

	r.forget()
	tries := 0
	require.NoError(t, s.InTx(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) error { return nil }))
	require.NoError(t, s.Read(t.Context(), func(ctx context.Context, db taskstate.Tx) error {
		tries++
		var one int
		return db.QueryRowContext(ctx, "SELECT 1").Scan(&one)
	}))
	require.Equal(t, 1, tries, "the transaction has found out that connections are dead")
}

// A server that takes connections and says nothing is one that does not answer; nothing hangs.
func TestASilentServerIsUnavailable(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for name, url := range map[string]string{"mysql": "mysql://u@ADDR/d", "postgres": "postgres://u@ADDR/d?sslmode=disable"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, taskstore.Config{DatabaseURL: strings.Replace(url, "ADDR", l.Addr().String(), 1), Timeout: 50 * time.Millisecond})
			err := s.Read(t.Context(), func(ctx context.Context, db taskstate.Tx) error {
				_, err := db.ExecContext(ctx, "SELECT 1")
				return err
			})
			require.ErrorIs(t, err, taskstate.ErrUnavailable)
		})
	}
}
