package watch

import (
	"context"
	"time"
)

const Buffer = watchBuffer

func (r *Watches) SetEvery(d time.Duration)     { r.hub.every = d }
func (r *Watches) Every() time.Duration         { return r.hub.every }
func (r *Watches) Look(ctx context.Context) int { return r.hub.look(ctx) }
