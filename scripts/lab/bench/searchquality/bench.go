package searchquality

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	clients   = 4
	waitLimit = 2 * time.Minute
	poll      = 20 * time.Millisecond
)

// Quality asks all questions of `make run` and of the services in every mode, of two other engines over the same segments, and
// of an all-in-one with a real embedding model.
func Quality(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	set, err := New()
	if err != nil {
		return nil, err
	}
	out, segments, err := set.dev(ctx, b)
	if err != nil {
		return out, err
	}
	more, err := set.beside(ctx, segments)
	if out = append(out, more...); err != nil {
		return out, err
	}
	if more, err = set.services(ctx, b); err != nil {
		return out, err
	}
	out = append(out, more...)
	for _, m := range models {
		if more, err = m.measure(ctx, b); err != nil {
			return out, fmt.Errorf("%s: %w", m.name, err)
		}
		out = append(out, more...)
	}
	return out, nil
}

// dev measures an all-in-one on its embedded defaults, and returns the texts of its segments.
func (s Set) dev(ctx context.Context, b *world.Bench) (out []figure.Figure, segments []string, err error) {
	w, err := world.New(ctx, b, world.Options{Name: "search-quality", Alone: true})
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	p, err := w.StartDev(ctx, world.FreeAddr())
	if err != nil {
		return nil, nil, err
	}
	client := apiclient.NewClient(p.HTTP)
	if err := s.upload(ctx, client); err != nil {
		return nil, nil, err
	}
	for _, mode := range []string{"auto", "vector", "hybrid"} {
		ranks, err := s.ask(ctx, client, mode)
		if err != nil {
			return out, nil, err
		}
		out = append(out, s.figures("make run, "+mode, ranks, mode == "auto")...)
	}
	segments, err = segmentsOf(ctx, filepath.Join(w.Data(), "millweir.db"))
	return out, segments, err
}

// services measures the services on MariaDB, Redis and Chroma.
func (s Set) services(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, _, err := figure.NewWorld(ctx, b, world.Options{Name: "search-quality-services"}, "ingest-api", "stream-worker", "reclaimer")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := s.upload(ctx, client); err != nil {
		return nil, err
	}
	ranks, err := s.ask(ctx, client, "auto")
	if err != nil {
		return nil, err
	}
	return s.figures("services, auto", ranks, true), nil
}

// upload brings all documents in and waits until they are visible.
func (s Set) upload(ctx context.Context, client *apiclient.Client) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for _, d := range s.Documents {
		g.Go(func() error {
			body := "# " + d.Title + "\n\n" + strings.Join(d.Paragraphs, "\n\n") + "\n"
			task, err := client.Upload(ctx, apiclient.Doc{Name: d.Language + " " + d.Title + ".md", Body: []byte(body)})
			if err == nil {
				_, err = client.Await(ctx, task.TaskID, taskstate.StatusSucceeded, waitLimit, poll)
			}
			return err
		})
	}
	return g.Wait()
}

// ask asks all questions in a mode.
func (s Set) ask(ctx context.Context, client *apiclient.Client, mode string) ([]int, error) {
	return s.Ask(func(query string) (found []string, err error) {
		hits, err := client.SearchBy(ctx, mode, "", query, depth)
		for _, h := range hits {
			found = append(found, h.Text)
		}
		return found, err
	})
}

// segmentsOf are the texts of all segments of a database.
func segmentsOf(ctx context.Context, path string) (out []string, err error) {
	db, err := taskstore.Open(ctx, taskstore.Config{DatabaseURL: "sqlite:" + path})
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // only read
	rows, err := db.Reader().QueryContext(ctx, "SELECT content FROM knowledge_segment ORDER BY version_id, segment_index")
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // only read
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, rows.Err()
}

// figures are the lexical questions by language, each kind, and with judged what was asked for (issue 17).
func (s Set) figures(of string, ranks []int, judged bool) (out []figure.Figure) {
	isLexical := func(q Question) bool { return slices.Contains(lexical, q.Kind) }
	all := s.Measure(ranks, isLexical)
	low := Measures{Recall5: 1, ReciprocalRank: 1}
	for _, l := range s.languages() {
		m := s.Measure(ranks, func(q Question) bool { return q.Language == l && isLexical(q) })
		low.Recall5, low.ReciprocalRank = min(low.Recall5, m.Recall5), min(low.ReciprocalRank, m.ReciprocalRank)
		out = append(out, m.figure(of+", "+l+": MRR"))
	}
	for _, k := range kinds {
		out = append(out, s.Measure(ranks, func(q Question) bool { return q.Kind == k }).figure(fmt.Sprintf("%s, %s: MRR", of, k)))
	}
	if !judged {
		return append(out, all.figure(of+", lexical questions: MRR"))
	}
	misspelt := s.Measure(ranks, func(q Question) bool { return q.Kind == Misspelt })
	asked := func(name string, measured, least float64, m Measures) figure.Figure {
		return figure.Figure{Name: of + ": " + name, Measured: measured, Asked: least, Relation: "≥", Note: m.note()}
	}
	return append(out,
		asked("recall@5 of lexical questions", all.Recall5, 0.98, all),
		asked("MRR of lexical questions", all.ReciprocalRank, 0.95, all),
		asked("recall@5 of the worst language", low.Recall5, 0.95, all),
		asked("MRR of the worst language", low.ReciprocalRank, 0.90, all),
		asked("recall@5 of misspelt words", misspelt.Recall5, 0.85, misspelt))
}

// languages are those of the set.
func (s Set) languages() (out []string) {
	for _, d := range s.Documents {
		if !slices.Contains(out, d.Language) {
			out = append(out, d.Language)
		}
	}
	return out
}

// figure is MRR with the other measures beside it.
func (m Measures) figure(name string) figure.Figure {
	return figure.Figure{Name: name, Measured: m.ReciprocalRank, Note: m.note()}
}

func (m Measures) note() string {
	return fmt.Sprintf("%d questions: recall@1 %.3f, @5 %.3f, @10 %.3f, nDCG@10 %.3f", m.Questions, m.Recall1, m.Recall5, m.Recall, m.Discounted)
}
