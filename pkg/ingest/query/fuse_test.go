package query_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/query"
)

// The words decide when a hit has all of them, the vectors when no hit has more than a few.
func TestFusedHits(t *testing.T) {
	t.Parallel()
	hit := func(document string) ingest.SearchHit { return ingest.SearchHit{DocumentID: document} }
	words := func(document string, share float64) ingest.SearchHit {
		h := hit(document)
		h.TextScore, h.TextShare = new(20*share), share
		return h
	}
	var near []ingest.SearchHit // fifty, all about as near
	for i := range 50 {
		h := hit(fmt.Sprint("near ", i))
		h.VectorScore = new(0.9 - float64(i)/1000)
		near = append(near, h)
	}
	names := func(hits []ingest.SearchHit) (out []string) {
		for _, h := range hits {
			out = append(out, h.DocumentID)
		}
		return out
	}

	all := query.Fuse([]ingest.SearchHit{words("has all", 0.95), words("near 0", 0.2)}, near)
	require.Len(t, all, 51)
	require.Equal(t, []string{"has all", "near 0", "near 1"}, names(all[:3]))
	require.Nil(t, all[0].VectorScore)
	require.NotNil(t, all[1].TextScore)
	require.NotNil(t, all[1].VectorScore)
	require.InDelta(t, 0.8*0.95, all[0].Score, 1e-9)
	require.InDelta(t, 0.8*0.2+0.2, all[1].Score, 1e-9)

	few := query.Fuse([]ingest.SearchHit{words("has a few", 0.1), words("near 7", 0.1)}, near)
	require.Equal(t, []string{"near 7", "near 0", "near 1"}, names(few[:3]))

	require.Equal(t, []string{"a"}, names(query.Fuse([]ingest.SearchHit{words("a", 1)}, nil)))
	one := hit("a")
	one.VectorScore = new(0.5)
	alone := query.Fuse(nil, []ingest.SearchHit{one})
	require.InDelta(t, 0.2, alone[0].Score, 1e-9, "the only one is the nearest")
	require.Empty(t, query.Fuse(nil, nil))

	half := query.FuseBy([]ingest.SearchHit{words("near 0", 0.4)}, near, 0.5)
	require.InDelta(t, 0.5*0.4+0.5, half[0].Score, 1e-9, "by another weight")
}
