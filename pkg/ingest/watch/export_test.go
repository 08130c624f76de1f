package watch

import (
	"context"
	"time"
)

const Buffer = watchBuffer

func (r *Watches) SetEvery(d time.Duration)     { r.every = d }
func (r *Watches) Every() time.Duration         { return r.every }
func (r *Watches) Look(ctx context.Context) int { return r.look(ctx) }
