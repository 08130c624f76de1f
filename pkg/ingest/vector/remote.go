package vector

import (
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
)

// Words say how the refusals of a store behind HTTP are told to people.
type Words struct {
	Dimension *regexp.Regexp // the store's, for a vector of another dimension: the collection's number of values, and the vector's
	Rows      string         // remedy where it refuses what was sent
	Key       string         // remedy where it refuses the key
	Address   string         // remedy where it does not know the address
}

// Refusal is the failure of a reply with an error status and its cause, err; after is how long the store asked to wait, 0 when it
// named no time. A status that stands for nothing here is a transient failure without a remedy.
func (w *Words) Refusal(err error, status int, cause string, after time.Duration) *ingest.Failure {
	f := ingest.Transient(ingest.CodeVector, "%w", err)
	switch status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		if m := w.Dimension.FindStringSubmatch(cause); m != nil {
			want, _ := strconv.Atoi(m[1])
			got, _ := strconv.Atoi(m[2])
			return DimensionFailure(got, want)
		}
		return ingest.Permanent(ingest.CodeVectorRejected, w.Rows, "%w", err)
	case http.StatusUnauthorized, http.StatusForbidden:
		f.Remedy = w.Key
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		f.Remedy = w.Address
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if status == http.StatusTooManyRequests || after > 0 {
			f.Code, f.Throttled, f.RetryAfter = ingest.CodeThrottled, true, after
		}
	}
	return f
}

// UpsertCall is one caller's rows, of one dimension, on their way into a request with others'.
type UpsertCall struct {
	Rows []ingest.Vector
	Dim  int
}

// Batch is one of package batcher.
type Batch interface {
	Items() []*UpsertCall
	Requeue(i int)
}

// Fitting are the rows of the calls that fit into a request of room rows and have the dimension of the first; the other calls lead the
// next request. The first call's rows are among them whatever their number.
func Fitting(b Batch, room int) (rows []ingest.Vector) {
	calls := b.Items()
	for i, call := range calls {
		if i > 0 && (call.Dim != calls[0].Dim || len(rows)+len(call.Rows) > room) {
			b.Requeue(i)
			continue
		}
		rows = append(rows, call.Rows...)
	}
	return rows
}
