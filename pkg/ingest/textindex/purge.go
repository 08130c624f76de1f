package textindex

import (
	"context"
	"errors"
	"fmt"

	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

// Purge writes those parts of a base anew that have words of closed versions: merges leave such words out only when they come to a
// part. It costs as much as the parts are large. clean: no word of a version that was closed before the call is left; false: a merge was
// under way, or somebody else changed a part, and a later call may find it so.
func (x *Index) Purge(ctx context.Context, base string) (clean bool, err error) {
	m, err := x.store.Moment(ctx)
	if err != nil {
		return false, err
	}
	all, err := x.partsOf(ctx, base)
	if err != nil {
		return false, err
	}
	idle, err := x.infos(ctx, x.q.Get("PartsIdle"), base, m.Now)
	if err != nil {
		return false, err
	}
	clean = len(idle) == len(all) // one that is added meanwhile has words of its own version only
	for _, p := range idle {
		err := x.purge(ctx, base, p)
		switch {
		case errors.Is(err, errRaced), errors.Is(err, errGone):
			clean = false
		case err != nil:
			return false, fmt.Errorf("write part %s of the text index of %s anew: %w", p.id, base, err)
		}
	}
	if err := x.removeOrphans(ctx); err != nil {
		return false, err
	}
	orphans, err := x.texts(ctx, x.q.Get("ChunkOrphaned")) // of a merge that died less than an hour ago, or is under way
	return clean && err == nil && len(orphans) == 0, err
}

// purge writes a part anew unless all its versions are alive.
func (x *Index) purge(ctx context.Context, base string, p info) error {
	opened, err := x.once().open(ctx, []info{p})
	if err != nil {
		return err
	}
	alive, err := x.alive(ctx, opened)
	if err != nil || allAlive(opened[0], alive) {
		return err
	}
	m, err := x.store.Moment(ctx)
	if err != nil {
		return err
	}
	if err := x.claim(ctx, []info{p}, m.Now); err != nil {
		return err
	}
	return x.merge(ctx, base, []info{p})
}

func allAlive(p *part.Part, alive map[string]bool) bool {
	for _, v := range p.Versions() {
		if !alive[v] {
			return false
		}
	}
	return true
}
