package textindex

import (
	"context"

	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

// SearchParts is Index.Search over open parts, wherever their bytes are.
func SearchParts(
	ctx context.Context, parts []*part.Part, query string, n int, allowed func(version string) bool,
) (Results, error) {
	return rank(ctx, parts, nil, query, n, allowed)
}

// Bytes are the part that the batch is written as.
func (b *Batch) Bytes() part.Bytes {
	out := make(part.Bytes, 0, b.bytes)
	for _, chunk := range b.chunks {
		out = append(out, chunk...)
	}
	return out
}
