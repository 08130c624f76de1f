package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/world"
)

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
