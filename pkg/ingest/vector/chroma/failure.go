package chroma

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/internal/rest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

// pingTimeout is short: readiness is asked every few seconds.
const pingTimeout = 5 * time.Second

// fixedVersion is what Chroma's Rust server answers under /version whatever its release is (1.5.9 does too, tried).
// The Python server, which the hole is in, answers its true version. So "1.0.0" alone tells nothing: a server that
// says so is taken only if it also offers base64 vectors, which the Python 1.0.0 never did.
const fixedVersion = "1.0.0"

// minVersion is the first without CVE-2026-45829 (1.0.0 to 1.5.8 instantiate what an unauthenticated caller names).
var minVersion = [3]int{1, 5, 9}

// tooManyVariables is Chroma's 500 for a request that no retry can cure.
const tooManyVariables = "too many SQL variables"

// versionFailure is nil for a version that may be used; *ingest.Failure otherwise.
func versionFailure(version string) error {
	var got [3]int
	parts := strings.SplitN(strings.SplitN(version, "-", 2)[0], ".", 3)
	if len(parts) != 3 {
		return ingest.Transient(ingest.CodeVector, "chroma answers version %.40q, which is no version", version)
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return ingest.Transient(ingest.CodeVector, "chroma answers version %.40q, which is no version", version)
		}
		got[i] = n
	}
	if slices.Compare(got[:], minVersion[:]) >= 0 {
		return nil
	}
	f := ingest.Transient(ingest.CodeVector, "chroma %s is refused: versions before 1.5.9 run code of unauthenticated callers (CVE-2026-45829) or lack the v2 API", version)
	f.Remedy = "Upgrade Chroma to 1.5.9 or later."
	return f
}

// wait is the rule for another try inside this attempt.
func (s *Store) wait(err error) (again bool, after time.Duration) {
	if status, ok := errors.AsType[*rest.StatusError](err); ok {
		again := status.Retryable() && !strings.Contains(status.Cause, tooManyVariables)
		return again, status.RetryAfter(s.now())
	}
	return rest.IsTransport(err), 0
}

// words are those of refusals.
var words = vector.Words{
	Dimension: regexp.MustCompile(`(?i)dimension of (\d+), got (\d+)`),
	Rows:      "The vector store refuses these rows.",
	Key:       "The vector store refuses the token: check CHROMA_TOKEN.",
	Address:   "The vector store does not know this address: check CHROMA_BASE_URL, CHROMA_TENANT and CHROMA_DATABASE.",
}

// failure gives an error the code that users and the state machine see; nil stays nil.
func (s *Store) failure(ctx context.Context, err error) error {
	var known *ingest.Failure
	var status *rest.StatusError
	switch {
	case err == nil, errors.As(err, &known), ctx.Err() != nil:
		return err
	case errors.As(err, &status):
		return s.statusFailure(status, err)
	}
	f := ingest.Transient(ingest.CodeVector, "%w", err)
	f.Remedy = "The vector store could not be reached."
	return f
}

func (s *Store) statusFailure(status *rest.StatusError, err error) error {
	if status.Status >= http.StatusInternalServerError && status.Status != http.StatusServiceUnavailable && strings.Contains(status.Cause, tooManyVariables) {
		return ingest.Permanent(ingest.CodeVectorRejected, "The vector store refuses a request of this size.", "%w", err)
	}
	return words.Refusal(err, status.Status, status.Cause, status.RetryAfter(s.now()))
}
