package workflow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

// remote is a workflow that a service does: the envelope is posted to it.
type remote struct {
	url     string
	headers http.Header
	client  *http.Client
}

// maxWords bounds how much of an error response's body is quoted.
const maxWords = 500

func newRemote(url string, headers http.Header, timeout time.Duration) *remote {
	return &remote{url: url, headers: headers, client: &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a body and headers go nowhere else
	}}
}

// run posts the envelope with the task's id as Idempotency-Key. 2xx but 202 is the result; 202, 409, 425, 429, 5xx and no response are
// tried again, when the service names a time at that time without counting an attempt; all else is permanent.
func (r *remote) run(ctx context.Context, run Run) (json.RawMessage, error) {
	body, err := pb.Encode(ingestq.EnvelopeOf(run.Task))
	if err != nil {
		return nil, fmt.Errorf("make the envelope: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, r.headers)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", run.Key)
	if run.Task.AttemptTrace != "" {
		request.Header.Set("Traceparent", run.Task.AttemptTrace)
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("workflow %s: %w", run.Task.WorkflowID, err)
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, MaxResult+1))
	if err != nil {
		return nil, fmt.Errorf("workflow %s: read the answer: %w", run.Task.WorkflowID, err)
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 && answer.StatusCode != http.StatusAccepted {
		return resultOf(text)
	}
	return nil, Judge(answer, text, time.Now(), CodeFailed, CodeRefused)
}

// Judge turns a response that is no result into a failure; body is the part of it that was read. A status after which the same request
// may succeed is tried again, with the code `again`; when the service asks to wait, that counts no attempt. All others are permanent,
// with the code `refused`.
func Judge(answer *http.Response, body []byte, now time.Time, again, refused string) error {
	status := answer.StatusCode
	said := strings.Join(strings.Fields(strings.ToValidUTF8(string(body[:min(len(body), maxWords)]), "")), " ")
	cause := strings.TrimSuffix(fmt.Sprintf("the service says %s: %s", answer.Status, said), ": ")
	after, named := retryAfter(answer.Header.Get("Retry-After"), now)
	switch {
	case status == http.StatusTooManyRequests, named && passes(status):
		return &Failure{Code: CodeThrottle, Throttled: true, RetryAfter: after, Cause: cause, Message: "The service asks to wait."}
	case passes(status):
		return &Failure{Code: again, Cause: cause, Message: "The service does not do it now."}
	}
	return Permanent(refused, "The service refuses the request.", "%s", cause)
}

// passes tells the statuses after which the same request may succeed.
func passes(status int) bool {
	return status == http.StatusAccepted || status == http.StatusConflict || status == http.StatusTooEarly ||
		status == http.StatusTooManyRequests || status >= 500
}

// retryAfter reads the header: seconds, or a date.
func retryAfter(text string, now time.Time) (wait time.Duration, named bool) {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return time.Duration(min(n, 24*3600)) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}

// resultOf returns a response's body as JSON; a body that is not JSON becomes a JSON string.
func resultOf(body []byte) (json.RawMessage, error) {
	if body = bytes.TrimSpace(body); len(body) == 0 || json.Valid(body) && bytes.IndexByte(body, 0) < 0 {
		return body, nil
	}
	return json.Marshal(strings.ToValidUTF8(string(body), "�"))
}
