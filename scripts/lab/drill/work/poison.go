package work

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
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
	if err := c.Audit(load, nil).Rest(ctx, stage.SettleLimit); err != nil {
		return err
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

const (
	childMemory = "EXTRACT_MEMORY_MB=128"
	// workerBytes bounds a worker with all of its extractors: two of them at their limit, and as much for itself.
	workerBytes = 512 << 20
	hungryEvery = 200 * time.Millisecond // looks at the workers' memory
)

// MemoryLimit uploads documents that eat memory beside innocent ones: each ends with a plain reason, no worker dies or grows.
func MemoryLimit(ctx context.Context, s *stage.Stage) (string, error) {
	want, ends := map[string]taskstate.Status{}, map[string]string{}
	var peak atomic.Int64
	return stage.Storm{
		Opts: world.Options{Env: []string{childMemory, "EXTRACT_PARALLEL=2", "INGEST_REDIS_MAX_ATTEMPTS=2", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=200"}}, Want: want,
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			end := time.Now().Add(s.Load)
			stop := await.Beside(ctx, func(ctx context.Context) error {
				for await.Pause(ctx, hungryEvery) {
					for _, p := range append(c.Of("stream-worker"), c.Of("reclaimer")...) {
						peak.Store(max(peak.Load(), p.Memory().Sum()))
					}
				}
				return nil
			})
			defer stop() //nolint:errcheck // it has none
			docs, err := hungry()
			if err != nil {
				return err
			}
			for _, d := range docs {
				if err := starve(ctx, c, d, want, ends); err != nil {
					return err
				}
			}
			await.Pause(ctx, time.Until(end))
			return errors.Join(stop(), c.AllRun())
		},
		Judge: func(context.Context, *stage.Cluster, *apiclient.Record) (string, error) {
			var err error
			if peak.Load() > workerBytes {
				err = fmt.Errorf("a worker and its extractors held %d MiB, the goal is %d", peak.Load()>>20, workerBytes>>20)
			}
			return fmt.Sprintf("%v; at most %d MiB held by a worker with its extractors (goal %d)", ends, peak.Load()>>20, workerBytes>>20), err
		},
	}.Run(ctx, s)
}

// starve uploads one waiting document and waits for its end: DEAD, for a reason that names no internal error.
func starve(ctx context.Context, c *stage.Cluster, doc apiclient.Doc, want map[string]taskstate.Status, ends map[string]string) error {
	started := time.Now()
	task, err := c.Client.Upload(ctx, doc)
	if err != nil {
		return fmt.Errorf("upload %s: %w", doc.Name, err)
	}
	want[task.TaskID] = taskstate.StatusDead
	seen, err := c.Client.Await(ctx, task.TaskID, "", stage.SettleLimit, 50*time.Millisecond)
	if err != nil {
		return fmt.Errorf("%s: %w", doc.Name, err)
	}
	switch ingest.Code(seen.ErrorCode) {
	case ingest.CodeLimitExceeded, ingest.CodeExtractCrashed, ingest.CodeCorrupt:
	default:
		return fmt.Errorf("%s ends as %s with %s: %s", doc.Name, seen.Status, seen.ErrorCode, seen.LastError)
	}
	ends[doc.Name] = fmt.Sprintf("%s in %.1f s: %.90s", seen.ErrorCode, time.Since(started).Seconds(), seen.LastError)
	return nil
}

// waiting are documents that grow when they are read, and that the gateway's look at their outside lets in.
func hungry() ([]apiclient.Doc, error) {
	token, err := apiclient.Docx(io.MultiReader(strings.NewReader("<w:p><w:r><w:t>"), io.LimitReader(noise{}, 16<<20), strings.NewReader("</w:t></w:r></w:p>")))
	if err != nil {
		return nil, err
	}
	content, err := squeezed(io.LimitReader(spaces{}, 400<<20))
	if err != nil {
		return nil, err
	}
	const depth = 2_000_000
	deep := "%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R/X " + strings.Repeat("<</A ", depth) + "1" + strings.Repeat(">>", depth) +
		">>endobj\ntrailer<</Size 2/Root 1 0 R>>\n%%EOF"
	return []apiclient.Doc{
		{Name: "token.docx", Body: token},
		{Name: "deep.pdf", Body: []byte(deep)},
		{Name: "tag.html", Body: []byte("<html><p title=\"" + strings.Repeat("x", 20<<20))},
		{Name: "content.pdf", Body: pdf(content)},
	}, nil
}

// squeezed is what PDF calls FlateDecode.
func squeezed(r io.Reader) ([]byte, error) {
	var buf bytes.Buffer
	z := zlib.NewWriter(&buf)
	if _, err := io.Copy(z, r); err != nil {
		return nil, err
	}
	err := z.Close()
	return buf.Bytes(), err
}

// pdf is a file of one page whose content is squeezed.
func pdf(content []byte) []byte {
	head := "%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n" +
		"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R>>endobj\n" +
		fmt.Sprintf("4 0 obj<</Length %d/Filter/FlateDecode>>stream\n", len(content))
	return append([]byte(head), append(content, "\nendstream endobj\ntrailer<</Size 5/Root 1 0 R>>\nstartxref\n0\n%%EOF"...)...)
}

// spaces are as many as one wants.
type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// noise is text that does not compress and has no mark-up.
type noise struct{}

func (noise) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte('A' + rand.IntN(26)) //nolint:gosec // filler, no secret
	}
	return len(b), nil
}
