package query

import (
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/telemetry"
)

const SearchAgain = searchAgain

func Fuse(text, vectors []ingest.SearchHit) []ingest.SearchHit {
	return fuse(text, vectors, textWeight)
}

var FuseBy = fuse

func (r *Reads) TextJoin(places int) string { return r.q.Any("TextJoin", places) }

func (r *Reads) SearchAround(hits int) string { return r.q.Any("SearchAround", hits) }

func (r *Reads) SearchJoin(hits int) string { return r.q.List("SearchJoin", hits) }

func (r *Reads) SetReranker(to ingest.Reranker, top int) { r.reranker, r.rerankTop = to, top }

func (r *Reads) SetTrouble(t *telemetry.Repeated) { r.trouble = t }

func (r *Reads) SetSearchTime(d time.Duration) { r.searchTime = d }

func (r *Reads) SetNow(now func() time.Time) { r.now = now }
