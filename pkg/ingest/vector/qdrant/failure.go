package qdrant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/internal/rest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

// pingTimeout is short: readiness is asked every few seconds.
const pingTimeout = 5 * time.Second

// Words of Qdrant that are told from others.
var (
	dimensionWords = regexp.MustCompile(`(?i)expected dim: (\d+), got (\d+)`)
	// A body over max_request_size_mb is a 400, not a 413, and so are more points than upsert_max_batchsize of strict mode.
	tooLargeWords = regexp.MustCompile(`(?i)payload .*(larger than allowed|exceeded limit)|limit exceeded .*upsert limit`)
	missingWords  = regexp.MustCompile(`(?i)collection .*(doesn't|does not) exist`)
)

func hasWords(err error, status int, words *regexp.Regexp) bool {
	reply, ok := errors.AsType[*rest.StatusError](err)
	return ok && reply.Status == status && words.MatchString(reply.Cause)
}

// isMissing finds a collection that does not exist; another 404 is that of a proxy, or of a wrong address.
func isMissing(err error) bool { return hasWords(err, http.StatusNotFound, missingWords) }

// isStale tells whether the collection is not what it was a moment ago: another process dropped it, and maybe made it anew.
func isStale(err error) bool {
	return isMissing(err) || hasWords(err, http.StatusBadRequest, dimensionWords)
}

// isTooLarge finds a request that the server, or a proxy before it, takes in smaller parts.
func isTooLarge(err error) bool {
	return rest.IsStatus(err, http.StatusRequestEntityTooLarge) || hasWords(err, http.StatusBadRequest, tooLargeWords)
}

// wait is the rule for another try inside this attempt.
func (s *Store) wait(err error) (again bool, after time.Duration) {
	if status, ok := errors.AsType[*rest.StatusError](err); ok {
		return status.Retryable() && status.Status != http.StatusInsufficientStorage, status.RetryAfter(s.now())
	}
	return rest.IsTransport(err), 0
}

// words are those of refusals.
var words = vector.Words{
	Dimension: dimensionWords,
	Rows:      "The vector store refuses this request.",
	Key:       "The vector store refuses the key: check that QDRANT_API_KEY is one that may make, write and drop collections.",
	Address:   "The vector store does not know this address: check QDRANT_URL.",
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
	f := words.Refusal(err, status.Status, status.Cause, status.RetryAfter(s.now()))
	if status.Status == http.StatusInsufficientStorage {
		f.Remedy = "The Qdrant server lacks disk space or memory."
	}
	return f
}

// Ping returns nil when the server answers, is of a version that may be used, and takes the key; one short try.
func (s *Store) Ping(ctx context.Context) error {
	_, version, err := s.Version(ctx)
	if err != nil {
		return err
	}
	if err := versionFailure(version); err != nil {
		return err
	}
	var reply struct{} // whether it exists tells nothing
	call := rest.Call{Method: http.MethodGet, Path: "/collections/kb-/exists", MaxReply: 64 << 10, Timeout: pingTimeout}
	body, err := s.client.Do(ctx, call)
	if err == nil {
		if err = decode(body, &reply); err != nil {
			err = fmt.Errorf("%s: not Qdrant's API: %w", s.client.Op(call), err)
		}
	}
	return s.failure(ctx, err)
}

// Version returns the server's version as it tells it, for which it wants no key. One short try.
func (s *Store) Version(ctx context.Context) (product, version string, err error) {
	var info struct {
		Title   string `json:"title"`
		Version string `json:"version"`
	}
	call := rest.Call{Method: http.MethodGet, Path: "/", MaxReply: 64 << 10, Timeout: pingTimeout}
	body, err := s.client.Do(ctx, call)
	if err == nil {
		if err = json.Unmarshal(body, &info); err == nil && !strings.Contains(strings.ToLower(info.Title), "qdrant") {
			err = fmt.Errorf("its title is %.40q", info.Title)
		}
		if err != nil {
			err = fmt.Errorf("%s: not Qdrant's API: %w", s.client.Op(call), err)
		}
	}
	if err != nil {
		return "", "", s.failure(ctx, err)
	}
	return "Qdrant", info.Version, nil
}

// versionFailure is nil for 1.10 and later, which know searches by /points/query.
func versionFailure(version string) error {
	var major, minor int
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && err == nil && (major > 1 || major == 1 && minor >= 10) {
		return nil
	}
	f := ingest.Transient(ingest.CodeVector, "qdrant %.40q is refused: 1.10 or later is needed", version)
	f.Remedy = "Upgrade Qdrant to 1.10 or later."
	return f
}
