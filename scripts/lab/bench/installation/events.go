package installation

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	eventClients = 1000
	eventTasks   = 10
	eventRest    = 20 * time.Second
	dialsAtOnce  = 50
)

// Events counts the statements that the database gets while 1,000 clients wait for something to happen.
func Events(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, procs, err := figure.NewWorld(ctx, b, world.Options{Name: "events"}, "ingest-api")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	load := apiclient.Load{Target: client, Clients: 2, Count: eventTasks, Bytes: smallText}.Run(ctx)
	before, err := statements(ctx, w)
	if err != nil {
		return nil, err
	}
	streams := &subscribers{client: &http.Client{Transport: &http.Transport{}}}
	defer streams.close()
	if err := streams.open(ctx, procs[0].HTTP, load); err != nil {
		return nil, err
	}
	after, err := statements(ctx, w)
	if err != nil {
		return nil, err
	}
	return []figure.Figure{
		{Name: "statements a second, 1,000 idle event streams", Measured: after, Unit: "/s", Asked: 5, Relation: "≤", Note: fmt.Sprintf("over %d tasks; %.2g/s without streams; MariaDB's Questions", eventTasks, before)},
		{Name: "ingest-api with them", Measured: figure.Megabytes(procs[0].Memory().Self), Unit: "MB"},
	}, nil
}

// statements is how many statements a second the database answers while nothing happens, without our own.
func statements(ctx context.Context, w *world.World) (float64, error) {
	await.Pause(ctx, 3*time.Second) // what the opening of streams caused is over
	read := func() (int64, error) {
		var name string
		var n int64
		err := w.DB.Reader().QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Questions'`).Scan(&name, &n)
		return n, err
	}
	first, err := read()
	if err != nil {
		return 0, err
	}
	started := time.Now()
	await.Pause(ctx, eventRest)
	last, err := read()
	return float64(last-first-1) / time.Since(started).Seconds(), err
}

// subscribers are open event streams.
type subscribers struct {
	client *http.Client
	mu     sync.Mutex
	bodies []*http.Response
}

// open opens the streams and waits for the first event of each.
func (s *subscribers) open(ctx context.Context, base string, load *apiclient.Record) error {
	var ids []string
	for id := range load.Accepted {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return fmt.Errorf("no task was accepted")
	}
	group := &errgroup.Group{}
	group.SetLimit(dialsAtOnce)
	for i := range eventClients {
		group.Go(func() error { return s.subscribe(ctx, base+"/api/knowledge/tasks/"+ids[i%len(ids)]+"/events") })
	}
	return group.Wait()
}

// subscribe opens one stream and reads its first event.
func (s *subscribers) subscribe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := s.client.Do(req) //nolint:bodyclose // close does
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.bodies = append(s.bodies, res) //nolint:bodyclose // close does
	s.mu.Unlock()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") {
			return nil
		}
	}
	return fmt.Errorf("%s answers %s and ends without an event: %w", url, res.Status, lines.Err())
}

// close ends all streams.
func (s *subscribers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.bodies {
		_ = r.Body.Close() // the server sees it
	}
}
