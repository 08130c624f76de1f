package work

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	poisonMark = "zzpoisonzz"
	poisonFile = "poison.txt"
	innocents  = 20
	poisonEnd  = 3 // INGEST_MAX_CRASHES
)

// executioner kills the process that holds the poison as soon as the embedding service sees the poison's text.
type executioner struct {
	Cluster atomic.Pointer[stage.Cluster]
	mu      sync.Mutex
	Kills   int
	beside  []int // how many other tasks each victim held
	err     error
}

// saw is asked for every text; the service's answer waits for it.
func (e *executioner) saw(text string) bool {
	c := e.Cluster.Load()
	if c == nil || !strings.Contains(text, poisonMark) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.strike(c); err != nil && e.err == nil {
		e.err = err
	}
	return false
}

// strike finds the holder by its lease and kills it.
func (e *executioner) strike(c *stage.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	held, err := tables.Running(ctx, c.DB.Reader())
	if err != nil {
		return fmt.Errorf("find the poison's holder: %w", err)
	}
	owner := ""
	for _, h := range held {
		if h.File == poisonFile {
			owner, _, _ = strings.Cut(h.Owner, "/")
		}
	}
	beside := -1
	for _, h := range held {
		if process, _, _ := strings.Cut(h.Owner, "/"); process == owner {
			beside++
		}
	}
	for _, p := range append(c.Of("stream-worker"), c.Of("reclaimer")...) {
		if p.Owns(owner+"/") && !p.Exited() {
			p.Kill()
			e.Kills++
			e.beside = append(e.beside, beside)
		}
	}
	return nil
}

// undertaker starts a new process for each that was killed, until ctx ends.
func undertaker(ctx context.Context, c *stage.Cluster) error {
	for await.Pause(ctx, 50*time.Millisecond) {
		for _, name := range []string{"stream-worker", "reclaimer"} {
			for _, p := range c.Of(name) {
				if !p.Exited() {
					continue
				}
				c.Drop(p)
				if _, err := c.Add(name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Poison kills whoever holds a document: the guilty document is DEAD (crash_limit) after three crashes and ran its last time alone; the others succeed.
func Poison(ctx context.Context, s *stage.Stage) (string, error) {
	e := &executioner{}
	c, err := s.NewCluster(ctx, world.Options{
		Embedder: &embedtest.Options{Reject: e.saw}, Env: []string{"INGEST_LEASE_MS=2000", "INGEST_MAX_CRASHES=" + strconv.Itoa(poisonEnd)},
	}, "ingest-api", "stream-worker", "stream-worker", "reclaimer")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: 200 * time.Millisecond}) // so that others run beside it
	e.Cluster.Store(c)
	end := await.Beside(ctx, func(ctx context.Context) error { return undertaker(ctx, c) })
	if err := errors.Join(e.feed(ctx, c), end()); err != nil {
		return "", err
	}
	return fmt.Sprintf("DEAD (crash_limit) after %d kills, run alone the last time (others held at the kills: %v); %d innocents succeeded",
		e.Kills, e.beside, innocents), nil
}

// feed uploads all and judges.
func (e *executioner) feed(ctx context.Context, c *stage.Cluster) error {
	bad, err := c.Client.Upload(ctx, apiclient.Doc{Name: poisonFile, Body: []byte("This text has the word " + poisonMark + " in it and ends every worker.")})
	if err != nil {
		return fmt.Errorf("upload the poison: %w", err)
	}
	load := apiclient.Load{Target: c.Client, Clients: 4, Count: innocents, First: 1, Bytes: stage.DocBytes}.Run(ctx)
	if err := c.Audit(load, nil).Settled(ctx, stage.SettleLimit); err != nil {
		return fmt.Errorf("no rest: %w%s", err, c.Explain(ctx))
	}
	e.Cluster.Store(nil)
	if err := c.Verify(ctx, load, map[string]taskstate.Status{bad.TaskID: taskstate.StatusDead}); err != nil {
		return err
	}
	log, err := tables.Log(ctx, c.DB.Reader(), bad.TaskID)
	if err != nil {
		return err
	}
	last := log[len(log)-1]
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		return e.err
	case last.Reason != taskstate.ReasonCrashLimit || last.CrashCount != poisonEnd || last.AttemptCount != 0:
		return fmt.Errorf("the poison ended as %s, crashes %d, attempts %d", last.Reason, last.CrashCount, last.AttemptCount)
	case e.Kills != poisonEnd:
		return fmt.Errorf("the poison took %d processes down, must be %d", e.Kills, poisonEnd)
	case e.beside[poisonEnd-1] != 0:
		return fmt.Errorf("%d other tasks were held beside the poison's last chance", e.beside[poisonEnd-1])
	}
	return nil
}
