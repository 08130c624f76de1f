package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/proxy"
	"github.com/millweir/millweir/scripts/lab/world"
)

// cutChance is the part of COMMITs without an answer.
const cutChance = 0.05

// moreCuts is how much longer than the load cuts go on until each kind was met.
const moreCuts = time.Minute

// cutKinds are the transactions that must be hit on both sides of their COMMIT.
var cutKinds = []string{"ACCEPTED", "CLAIMED", "DONE"}

// CommitUnknown cuts COMMITs at random: nobody can tell whether they were done, and all is done exactly once.
func CommitUnknown(ctx context.Context, s *stage.Stage) (string, error) {
	return stage.Storm{
		Opts: world.Options{CutCommits: true},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			c.Commits.Cut(cutChance, s.Random)
			await.Pause(ctx, s.Load)
			err := await.Until(ctx, moreCuts, time.Second, func(context.Context) error { return allCut(c.Commits.Cuts()) })
			c.Commits.Cut(0, nil)
			return errors.Join(err, c.AllRun())
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			cuts, all, hits := c.Commits.Cuts(), 0, ""
			for _, n := range cuts {
				all += n
			}
			for _, kind := range cutKinds {
				hits += fmt.Sprintf(", %s %d/%d", kind, cuts[proxy.Cut{What: kind}], cuts[proxy.Cut{What: kind, Done: true}])
			}
			attempts, crashes, err := stage.Costs(ctx, c)
			return fmt.Sprintf("%d COMMITs cut (COMMIT lost/answer lost%s), %d attempts and %d crashes counted", all, hits, attempts, crashes), err
		},
	}.Run(ctx, s)
}

// allCut says which kind of transaction has not yet lost both a COMMIT and an answer.
func allCut(cuts map[proxy.Cut]int) error {
	for _, kind := range cutKinds {
		if lost, done := cuts[proxy.Cut{What: kind}], cuts[proxy.Cut{What: kind, Done: true}]; lost == 0 || done == 0 {
			return fmt.Errorf("of %s %d COMMITs were lost and %d answers: both must be met", kind, lost, done)
		}
	}
	return nil
}
