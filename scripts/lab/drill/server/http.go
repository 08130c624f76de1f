package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/proxy"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	throttleWait = time.Second // Retry-After of 429 answers
	oddBase      = "odd"       // a base whose collection holds vectors of another dimension
	oddDimension = 7
)

// ChromaFaults lets the vector store be away, fail, throttle, break off and hold vectors of another model.
func ChromaFaults(ctx context.Context, s *stage.Stage) (string, error) {
	met := map[string]int{}
	var reason string
	want := map[string]taskstate.Status{}
	return stage.Storm{
		Opts: world.Options{ChromaHTTP: true, Env: stage.Retrying}, Want: want,
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			var err error
			if reason, err = wrongDimension(ctx, c, want); err != nil {
				return err
			}
			known, err := visibleText(ctx, c)
			if err != nil {
				return err
			}
			if err := c.Chroma.Kill(ctx); err != nil {
				return err
			}
			if err := searchesWithoutVectors(ctx, c, known); err != nil {
				return err
			}
			await.Pause(ctx, s.Load/3)
			if err := c.Chroma.Restart(ctx); err != nil {
				return err
			}
			turn := s.Load / 9 // each of the others, with as much peace after it
			for _, f := range []struct {
				Name  string
				fault proxy.HTTPFault
			}{
				{"500", proxy.Answer(http.StatusInternalServerError, 0)},
				{"429", proxy.Answer(http.StatusTooManyRequests, throttleWait)},
				{"cut answers", proxy.CutBody},
			} {
				await.Pause(ctx, turn)
				c.ChromaHTTP.Set(f.fault)
				await.Pause(ctx, turn)
				if err := await.Until(ctx, stage.LiveLimit, turn/10, func(context.Context) error {
					if c.ChromaHTTP.Met() == 0 {
						return fmt.Errorf("no request met %s", f.Name)
					}
					return nil
				}); err != nil {
					return err
				}
				met[f.Name] = c.ChromaHTTP.Set(nil)
			}
			return c.AllRun()
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			attempts, crashes, err := stage.Costs(ctx, c)
			if err == nil && crashes > 0 {
				err = fmt.Errorf("%d crashes were counted for faults of the vector store", crashes)
			}
			return fmt.Sprintf("away for %.0f s, requests that met %v; another dimension: DEAD, %q; %d attempts counted",
				(s.Load / 3).Seconds(), met, reason, attempts), err
		},
	}.Run(ctx, s)
}

// visibleText uploads a text and waits until it is visible.
func visibleText(ctx context.Context, c *stage.Cluster) (apiclient.Doc, error) {
	doc := apiclient.Text(2_000_001, stage.DocBytes)
	task, err := c.Client.Upload(ctx, doc)
	if err == nil {
		_, err = c.Client.Await(ctx, task.TaskID, taskstate.StatusSucceeded, stage.LiveLimit, 50*time.Millisecond)
	}
	return doc, err
}

// searchesWithoutVectors searches while Chroma is away: the words are found in every mode that looks for words, and a search of
// vectors alone is told so.
func searchesWithoutVectors(ctx context.Context, c *stage.Cluster, doc apiclient.Doc) error {
	for _, mode := range []string{"auto", "hybrid", "text"} {
		hits, err := c.Client.SearchBy(ctx, mode, "", doc.Mark, 1)
		if err != nil {
			return fmt.Errorf("search (%s) without Chroma: %w", mode, err)
		}
		if len(hits) != 1 || hits[0].FileName != doc.Name {
			return fmt.Errorf("search (%s) without Chroma does not find %s: %v", mode, doc.Name, hits)
		}
	}
	var refused *apiclient.StatusError
	if _, err := c.Client.SearchBy(ctx, "vector", "", doc.Mark, 1); !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable {
		return fmt.Errorf("search (vector) without Chroma is not 503: %w", err)
	}
	return nil
}

// wrongDimension uploads into a base whose collection was filled by another model: DEAD at once, with a reason.
func wrongDimension(ctx context.Context, c *stage.Cluster, want map[string]taskstate.Status) (string, error) {
	if err := c.Client.CreateBase(ctx, oddBase); err != nil {
		return "", fmt.Errorf("make base %s: %w", oddBase, err)
	}
	var base string
	if err := c.DB.Reader().QueryRowContext(ctx, `SELECT id FROM knowledge_base WHERE name = ?`, oddBase).Scan(&base); err != nil {
		return "", fmt.Errorf("find base %s: %w", oddBase, err)
	}
	odd := ingest.Vector{ID: strings.Repeat("0", 64), DocumentID: "odd", Birth: "odd", Values: make([]float32, oddDimension)}
	odd.Values[0] = 1
	if err := c.Vectors.Upsert(ctx, base, []ingest.Vector{odd}); err != nil {
		return "", err
	}
	doc := apiclient.Text(2_000_000, stage.DocBytes)
	doc.Base = oddBase
	task, err := c.Client.Upload(ctx, doc)
	if err != nil {
		return "", fmt.Errorf("upload into base %s: %w", oddBase, err)
	}
	want[task.TaskID] = taskstate.StatusDead
	seen, err := c.Client.Await(ctx, task.TaskID, taskstate.StatusDead, stage.LiveLimit, 50*time.Millisecond)
	if err != nil {
		return "", fmt.Errorf("another dimension: %w", err)
	}
	if seen.ErrorCode != string(ingest.CodeDimension) || seen.AttemptCount != 1 {
		return "", fmt.Errorf("another dimension ends with %s after %d attempts: %s", seen.ErrorCode, seen.AttemptCount, seen.LastError)
	}
	return seen.LastError, c.Vectors.Drop(ctx, base) // as its operator would; the checker knows all vectors by SQL
}

// EmbedFaults lets the embedding service throttle, lie and fall silent; a throttle that names its time counts no attempt.
func EmbedFaults(ctx context.Context, s *stage.Stage) (string, error) {
	fair := embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime}
	faults := []embedtest.Fault{
		{Kind: embedtest.Throttle, For: throttleWait}, {Kind: embedtest.OKError}, {Kind: embedtest.Miscount}, {Kind: embedtest.NaN}, {Kind: embedtest.Hang},
	}
	var throttled int
	var met []string
	return stage.Storm{
		Opts: world.Options{Env: append([]string{"EMBEDDING_TIMEOUT=2s"}, stage.Retrying...)},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			turn := s.Load / time.Duration(2*len(faults)) // each, and as much peace after it
			for _, f := range faults {
				before := len(c.Embed.Effects())
				c.Embed.Clear()
				c.Embed.Set(f)
				await.Pause(ctx, turn)
				hits := len(c.Embed.Effects()) - before
				c.Embed.Clear()
				c.Embed.Set(fair)
				if hits == 0 {
					return fmt.Errorf("no request met %s", f.Kind)
				}
				met = append(met, fmt.Sprintf("%s %d", f.Kind, hits))
				if f.Kind == embedtest.Throttle {
					attempts, _, err := stage.Costs(ctx, c)
					if err != nil || attempts > 0 {
						return fmt.Errorf("%d attempts were counted for 429 with Retry-After (%w)", attempts, err)
					}
					throttled = hits
				}
				await.Pause(ctx, turn)
			}
			return c.AllRun()
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			attempts, crashes, err := stage.Costs(ctx, c)
			if err == nil && crashes > 0 {
				err = fmt.Errorf("%d crashes were counted for faults of the embedding service", crashes)
			}
			return fmt.Sprintf("requests that met %s; no attempt counted for %d throttles, %d for the others", strings.Join(met, ", "), throttled, attempts), err
		},
	}.Run(ctx, s)
}
