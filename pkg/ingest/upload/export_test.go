package upload

import (
	"context"

	"github.com/millweir/millweir/pkg/ingest"
)

type Accepting = accepting

const (
	MaxNameChars = maxNameChars
	Nameless     = nameless
	UnknownKept  = unknownKept
)

// NewAccepting is an upload on its way into a batch.
func NewAccepting(c ingest.Caller, u ingest.Upload) (*Accepting, error) {
	err := u.Clean()
	return &accepting{c: c, u: u}, err
}

// Together accepts uploads of any callers in one batch.
func (a *Uploads) Together(ctx context.Context, items ...*Accepting) ([]ingest.Accepted, []error) {
	out, errs := make([]ingest.Accepted, len(items)), make([]error, len(items))
	for i, err := range a.accepts.Do(ctx, items...) {
		out[i], errs[i] = a.answer(ctx, items[i], err)
	}
	return out, errs
}

func (a *Uploads) KeepUnknown(id string)                    { a.keepUnknown(id) }
func (a *Uploads) ResolveUnknown(ctx context.Context) error { return a.resolveUnknown(ctx) }

func (a *Uploads) Unknowns() int {
	a.unknown.mu.Lock()
	defer a.unknown.mu.Unlock()
	return len(a.unknown.since)
}

// U and C are what is accepted, and for whom.
func (x *accepting) U() *ingest.Upload { return &x.u }
func (x *accepting) C() *ingest.Caller { return &x.c }
