package document

import (
	"context"
	"fmt"
	"strings"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/mutants"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	indexRounds = 11
	indexWarm   = 16 // documents that a fresh worker is given first
	indexBug    = "m30"
)

// TextIndex takes the documents of Documents through workers that write the full-text index and through workers with the seeded
// bug that leaves it out, by turns. What the reclaimer's merges cost is not in it.
func TextIndex(ctx context.Context, _ *world.Bench) ([]figure.Figure, error) {
	b, err := world.Prepare(ctx, "bench", world.WithBugs)
	if err != nil {
		return nil, err
	}
	s, err := startStub(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	w, client, _, err := figure.NewWorld(ctx, b, world.Options{Name: "text-index", Env: []string{
		"EMBEDDING_BASE_URL=" + s.url, "EMBEDDING_MODEL=test", "EXTRACT_CHILD_FILES=100000", "UPLOAD_RATE_LIMIT=0",
	}}, "ingest-api")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	r := &documentsRun{b: b, w: w, client: client, load: &apiclient.Record{Accepted: map[string]apiclient.Doc{}}}
	rounds := make([]indexRound, indexRounds)
	for n := range rounds {
		for turn := range 2 {
			of, env := &rounds[n].with, []string(nil)
			if (n+turn)%2 == 1 { // who is first takes turns too
				of, env = &rounds[n].without, []string{mutants.Env(indexBug)}
			}
			if *of, err = r.fresh(ctx, n, env...); err != nil {
				return nil, fmt.Errorf("round %d: %w", n, err)
			}
		}
	}
	return indexFigures(rounds), nil
}

// fresh measures a worker that was started for this round.
func (r *documentsRun) fresh(ctx context.Context, n int, env ...string) (c cost, err error) {
	docs, err := mix(r.b.Root, n)
	if err != nil {
		return c, err
	}
	if r.worker, err = r.w.StartReady(ctx, "stream-worker", env...); err != nil {
		return c, err
	}
	for _, some := range [][]apiclient.Doc{docs[:indexWarm], docs} {
		if err := r.forgetLedger(ctx); err != nil {
			return c, err
		}
		if c, _, err = r.whole(ctx, some, fmt.Sprintf("base-%d", len(r.load.Accepted))); err != nil {
			return c, err
		}
	}
	_, err = r.worker.Stop(ctx, figure.StartLimit)
	return c, err
}

// indexRound is what one mix of documents took in both ways.
type indexRound struct{ with, without cost }

// indexFigures compares the rounds pairwise: a busy moment of the machine hits neighbours alike.
func indexFigures(rounds []indexRound) []figure.Figure {
	var rates []string
	for _, r := range rounds {
		rates = append(rates, fmt.Sprintf("%.0f/%.0f", mixDocs/r.with.wall, mixDocs/r.without.wall))
	}
	with := cpuOfDocument(rounds, func(r indexRound) cost { return r.with })
	without := cpuOfDocument(rounds, func(r indexRound) cost { return r.without })
	return []figure.Figure{
		{
			Name: "documents/s with the full-text index / without", Measured: middle(rounds, func(r indexRound) float64 { return r.without.wall / r.with.wall }),
			Unit: "×", Asked: 0.95, Relation: "≥", Note: fmt.Sprintf("%d documents, by turns: %s docs/s", mixDocs, strings.Join(rates, " ")),
		},
		{
			Name: "CPU of the full-text index, a document", Measured: 1000 * middle(rounds, func(r indexRound) float64 { return r.with.total() - r.without.total() }) / mixDocs,
			Unit: "ms", Note: "with it " + with + "; without " + without,
		},
	}
}
