package embedcache

import "context"

type (
	EmbeddingRead = embeddingRead
	CachePaid     = cachePaid
)

func NewLook(model string, hashes ...TextHash) *EmbeddingRead {
	return &embeddingRead{model: model, hashes: hashes}
}

func NewPaid(model string, entries ...Entry) *CachePaid {
	return &cachePaid{model: model, entries: entries}
}

func (l *embeddingRead) Known() map[TextHash]int { return l.known }

// LookUp and Pay are what several runs ask at once.
func (a *Cache) LookUp(ctx context.Context, looks ...*EmbeddingRead) []error {
	return a.looks.Do(ctx, looks...)
}
func (a *Cache) Pay(ctx context.Context, paid ...*CachePaid) []error { return a.paid.Do(ctx, paid...) }
