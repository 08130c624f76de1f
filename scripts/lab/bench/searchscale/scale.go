// Package searchscale measures the text search of bases of 10 thousand segments to a million, on each database.
package searchscale

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	mostRows   = 100_000 // segments of the largest base; BENCH_ROWS says otherwise
	distinct   = 100_000 // segments that are made; a larger base has copies of them
	warmUp     = 200     // searches before the first that is timed
	ofEachKind = 100     // searches of a kind that are timed
	ofAll      = 400     // of all kinds, mixed
	clients    = 8
	clientTime = 10 * time.Second
	busyFrom   = 1_000_000 // segments from which on concurrent searches are asked for
	busyAsked  = 200       // a second
	buildAsked = 0.3       // ms of CPU a segment
	bytesAsked = 1.2       // of the index, a byte of text
	buildTexts = 4000
)

// asked is the p95 of a search that is asked for, by segments (issue 17).
var asked = map[int]float64{10_000: 10, 100_000: 25, 1_000_000: 60}

// Scale fills bases on SQLite, MariaDB and Postgres and searches them through the product's own query.
func Scale(ctx context.Context, _ *world.Bench) (out []figure.Figure, err error) {
	out = append(out, build())
	dir, err := os.MkdirTemp("", "millweir-bench-")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // thrown away
	var places []*place
	defer func() {
		for _, p := range places {
			p.close()
		}
	}()
	for _, one := range []struct {
		name string
		kind labserver.Kind
		args []string
	}{
		{"SQLite", "", nil},
		{"MariaDB", labserver.KindMariaDB, []string{"--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G"}},
		{"Postgres", labserver.KindPostgres, []string{"-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB"}},
	} {
		p, err := newPlace(ctx, one.name, one.kind, dir, one.args...)
		if err != nil {
			return out, err
		}
		places = append(places, p)
	}
	most := figure.Setting("BENCH_ROWS", mostRows)
	var written filled
	for segments := min(10_000, most); segments <= most; segments *= 10 {
		began := time.Now()
		if segments > distinct {
			written, err = multiply(ctx, places, segments, distinct, written)
		} else {
			written, err = fill(ctx, places, segments)
		}
		if err != nil {
			return out, fmt.Errorf("fill with %d segments: %w", segments, err)
		}
		written.took = time.Since(began)
		for _, p := range places {
			if p.server != nil && p.server.Kind == labserver.KindPostgres { // or it plans without figures until its own look
				if err := p.server.SQL(ctx, database, "ANALYZE"); err != nil {
					return out, err
				}
			}
			figures, err := p.measure(ctx, segments, written)
			if out = append(out, figures...); err != nil {
				return out, fmt.Errorf("%s, %d segments: %w", p.name, segments, err)
			}
		}
	}
	return out, nil
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// build is what a segment costs a worker before its transaction, in documents of ten segments.
func build() figure.Figure {
	var texts []textindex.Text
	size := 0
	for n := range buildTexts / perDocument {
		texts = append(texts, document(0, n)...)
	}
	runtime.GC()
	began := cpu()
	for i := 0; i < len(texts); i += perDocument {
		textindex.Build("base", texts[i:i+perDocument])
	}
	spent := cpu() - began
	for _, t := range texts {
		size += len(t.Text)
	}
	return figure.Figure{
		Name: "CPU of the index, a segment", Measured: spent.Seconds() * 1000 / buildTexts, Unit: "ms", Asked: buildAsked, Relation: "≤",
		Note: fmt.Sprintf("%d segments of %d bytes, ten of a document", buildTexts, size/buildTexts),
	}
}

// measure searches the base.
func (p *place) measure(ctx context.Context, segments int, written filled) (out []figure.Figure, err error) {
	_, bytes, err := p.index.Stats(ctx, p.base)
	if err != nil {
		return nil, err
	}
	parts, err := sqldb.ReadAll(ctx, p.store, "parts", p.q.Get("PartCount"), []any{p.base}, sqldb.Column[int])
	if err != nil {
		return nil, err
	}
	of := fmt.Sprintf("%s, %s segments: ", p.name, count(segments))
	out = append(out, figure.Figure{
		Name: of + "bytes of the index ÷ text", Measured: float64(bytes) / float64(written.text), Unit: "×", Asked: bytesAsked, Relation: "≤",
		Note: fmt.Sprintf("%.1f MB of text in %d parts; merges of all took %.1f s on SQLite, the whole of filling %.1f s",
			figure.Megabytes(written.text), parts[0], written.merging.Seconds(), written.took.Seconds()),
	})
	p.restart()
	first, err := p.search(ctx, queries("words", 1, written.documents))
	if err != nil {
		return out, err
	}
	if _, err := p.search(ctx, queries("", warmUp+ofAll, written.documents)[ofAll:]); err != nil {
		return out, err
	}
	all, err := p.search(ctx, queries("", ofAll, written.documents))
	if err != nil {
		return out, err
	}
	out = append(out, figure.Figure{
		Name: of + "search, p95", Measured: figure.Ms(figure.Percentile(all, 95)), Unit: "ms", Asked: asked[segments], Relation: "≤",
		Note: fmt.Sprintf("p50 %.2f ms of %d; the first of a process %.1f ms", figure.Ms(figure.Percentile(all, 50)), len(all), figure.Ms(first[0])),
	})
	for _, k := range kinds {
		times, err := p.search(ctx, queries(k.name, ofEachKind, written.documents))
		if err != nil {
			return out, err
		}
		out = append(out, figure.Figure{
			Name: of + k.name + ", p95", Measured: figure.Ms(figure.Percentile(times, 95)), Unit: "ms",
			Note: fmt.Sprintf("p50 %.2f ms of %d", figure.Ms(figure.Percentile(times, 50)), len(times)),
		})
	}
	busy, err := p.busy(ctx, queries("", ofAll, written.documents))
	if segments >= busyFrom {
		busy.Asked, busy.Relation = busyAsked, "≥"
	}
	busy.Name = of + busy.Name
	return append(out, busy), err
}

// search times searches one after the other.
func (p *place) search(ctx context.Context, queries []string) (times []time.Duration, err error) {
	for _, q := range queries {
		began := time.Now()
		if err := p.one(ctx, q); err != nil {
			return nil, fmt.Errorf("%q: %w", q, err)
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}

// one is one search.
func (p *place) one(ctx context.Context, query string) error {
	_, err := p.reads.Search(ctx, caller, ingest.SearchRequest{Base: p.base, Query: query, Mode: ingest.SearchText})
	return err
}

// busy counts the searches of several clients.
func (p *place) busy(ctx context.Context, queries []string) (figure.Figure, error) {
	var done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	began, spent := time.Now(), cpu()
	for range clients {
		g.Go(func() error {
			for time.Since(began) < clientTime {
				if err := p.one(ctx, queries[int(done.Add(1))%len(queries)]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	n, took := float64(done.Load()), time.Since(began)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return figure.Figure{
		Name: "searches a second", Measured: n / took.Seconds(), Unit: "/s",
		Note: fmt.Sprintf("%d clients; %.2f ms of this process's CPU each; %.0f MB of heap", clients, (cpu()-spent).Seconds()*1000/n, figure.Megabytes(int64(mem.HeapInuse))), //nolint:gosec // a size
	}, err
}

// count is a number of segments as people say it.
func count(n int) string {
	if n >= 1_000_000 {
		return fmt.Sprintf("%g M", float64(n)/1e6)
	}
	return fmt.Sprintf("%g k", float64(n)/1e3)
}
