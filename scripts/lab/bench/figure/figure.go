// Package figure is what the benchmarks share: figures, worlds, sample documents.
package figure

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/judge"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

// Figure is one measured number beside the one asked for.
type Figure struct {
	Bench    string  `json:"bench"`
	Name     string  `json:"name"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	Asked    float64 `json:"asked"`           // 0 with an empty Relation: none
	Relation string  `json:"relation"`        // "≤" or "≥": how Measured must stand to Asked; empty: told for its own sake
	Met      bool    `json:"met"`             // true when nothing was asked
	Note     string  `json:"note,omitempty"`  // sizes and counts
	Error    string  `json:"error,omitempty"` // it could not be measured
}

const (
	StartLimit  = 40 * time.Second
	SettleLimit = 5 * time.Minute
	Kilobyte    = 1000
)

// NewWorld starts servers and services and waits until all are ready; the gateway's client comes with it.
func NewWorld(ctx context.Context, b *world.Bench, opts world.Options, names ...string) (*world.World, *apiclient.Client, []*proc.Proc, error) {
	w, err := world.New(ctx, b, opts)
	if err != nil {
		return nil, nil, nil, err
	}
	var procs []*proc.Proc
	var client *apiclient.Client
	for _, name := range names {
		p, err := w.StartReady(ctx, name)
		if err != nil {
			w.Close()
			return nil, nil, nil, err
		}
		if p.HTTP != "" {
			client = apiclient.NewClient(p.HTTP)
		}
		procs = append(procs, p)
	}
	return w, client, procs, nil
}

// Counted waits until the tasks' counts by status satisfy cond.
func Counted(ctx context.Context, w *world.World, limit time.Duration, cond func(map[taskstate.Status]int) bool) error {
	return await.Until(ctx, limit, 20*time.Millisecond, func(ctx context.Context) error {
		counts, err := tables.CountStatus(ctx, w.DB.Reader())
		if err == nil && !cond(counts) {
			err = fmt.Errorf("tasks are %v", counts)
		}
		return err
	})
}

// Audit is the judge of a world after a load.
func Audit(w *world.World, load *apiclient.Record) judge.Audit {
	return judge.Audit{DB: w.DB.Reader(), Vectors: w.Vectors, Stream: w.Stream, Load: load}
}

// Percentile is the smallest value that p per cent of all do not exceed; it sorts the values. No values give 0.
func Percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	at := int(float64(len(values))*p/100+0.9999) - 1
	return values[max(0, min(at, len(values)-1))]
}

// Median is the middle of the values, which are left as they are.
func Median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// Ms is a duration in milliseconds.
func Ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Megabytes is a size in MB of 2^20 bytes.
func Megabytes(n int64) float64 { return float64(n) / (1 << 20) }

// Setting is a number out of the environment.
func Setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// Corpus reads the sample files: those with text, and the hostile ones that get as far as a reader.
func Corpus(root string) (good, hostile []apiclient.Doc, err error) {
	dir := filepath.Join(root, "pkg", "ingest", "extract", "testdata")
	raw, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		return nil, nil, err
	}
	var samples []struct {
		File     string   `json:"file"`
		Codes    []string `json:"codes"`
		Either   bool     `json:"either"`
		AtUpload bool     `json:"atUpload"`
	}
	if err := json.Unmarshal(raw, &samples); err != nil {
		return nil, nil, fmt.Errorf("manifest.json: %w", err)
	}
	for _, s := range samples {
		if s.AtUpload {
			continue
		}
		d, err := apiclient.FileDoc(filepath.Join(dir, "corpus", s.File))
		if err != nil {
			return nil, nil, err
		}
		if len(s.Codes) > 0 || s.Either {
			hostile = append(hostile, d)
		} else {
			good = append(good, d)
		}
	}
	return good, hostile, nil
}
