// Package workflow runs tasks of the type workflow.execute: work with a name and a JSON payload, of any kind.
//
// A Registry holds the workflows that a process knows, a Handler runs them, and Records writes a row of workflow_runs in the
// transaction that ends a task. Whoever adds a workflow makes a Workflow, or an entry of WORKFLOWS_FILE (Load).
package workflow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Type is the type of the tasks.
const Type = "workflow.execute"

// The codes of failures; UPPER_SNAKE.
const (
	CodeUnknown  = "UNKNOWN_WORKFLOW" // SUSPENDED: no worker that runs now knows it
	CodePayload  = "INVALID_PAYLOAD"  // permanent: it does not fit the workflow's schema
	CodeResult   = "RESULT_NOT_VALID" // permanent: no JSON, or more than MaxResult
	CodeRefused  = "WORKFLOW_REFUSED" // permanent: a service refuses the request
	CodeFailed   = "WORKFLOW_FAILED"  // tried again
	CodeThrottle = "THROTTLED"        // tried again when the service asks for it; counts no attempt
)

// MaxResult bounds a result, in bytes of JSON.
const MaxResult = 256 << 10

// Request is what a client asks for: the payload of the task. All members but UserText are JSON as it was sent.
type Request struct {
	UserText     string          `json:"userText,omitempty"`
	Payload      json.RawMessage `json:"payload,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	History      json.RawMessage `json:"history,omitempty"`
	Policy       json.RawMessage `json:"policy,omitempty"`
	CoreEnvelope json.RawMessage `json:"coreEnvelope,omitempty"`
	Telemetry    json.RawMessage `json:"telemetry,omitempty"`
	User         json.RawMessage `json:"user,omitempty"`
}

// Run is one attempt of a task.
type Run struct {
	Task    taskstate.Task // as claimed
	Request Request
	Payload json.RawMessage // the request's: an object that fits the workflow's schema
	// Key is the idempotency key of an effect outside the database: it is the same for all attempts.
	Key string
	// Report proves that work moves: an attempt that reports nothing for the stall limit fails. It never blocks.
	Report func(taskstate.Progress)
}

// Workflow is one sort of work.
type Workflow struct {
	ID     string          // such as ingest.text
	Schema json.RawMessage // a JSON Schema of the payload, without references to other documents; nil: any object
	// Text is the member of the payload for which the request's userText stands when the payload has none; empty: for none.
	Text string
	// Run does the work; it is safe for concurrent use and may run again for the same task. The result is JSON, at most MaxResult
	// bytes. Errors: *Failure; taskstate.ErrUnavailable (counts nothing); any other is tried again.
	Run func(ctx context.Context, r Run) (json.RawMessage, error)
}

// Failure is an error whose consequence is known.
type Failure taskstate.Failure

// Error is the cause.
func (f *Failure) Error() string { return f.Cause }

// Permanent returns a Failure that no retry can cure; message is for the user.
func Permanent(code, message, format string, args ...any) *Failure {
	return &Failure{Code: code, Permanent: true, Message: message, Cause: fmt.Sprintf(format, args...)}
}

// ErrUnknown says that no workflow has this id.
var ErrUnknown = errors.New("unknown workflow")

// PayloadError says what in a payload does not fit its schema.
type PayloadError struct {
	Path    string // a JSON pointer into the payload, such as /url; empty: the payload itself
	Problem string
}

// Error names the place and the problem.
func (e *PayloadError) Error() string { return "payload" + e.Path + ": " + e.Problem }

// Registry knows workflows by their ids. It is safe for concurrent use.
type Registry struct{ known map[string]known }

// known is a workflow with its schema compiled; nil: any object.
type known struct {
	Workflow
	schema *jsonschema.Schema
}

// New makes a Registry. Errors: an id that is missing, not clean or twice there; a schema that is none.
func New(all ...Workflow) (*Registry, error) {
	r := &Registry{known: make(map[string]known, len(all))}
	for _, w := range all {
		if err := CheckID(w.ID); err != nil {
			return nil, err
		}
		if _, twice := r.known[w.ID]; twice {
			return nil, fmt.Errorf("workflow %s stands more than once", w.ID)
		}
		k := known{Workflow: w}
		if w.Schema != nil {
			var err error
			if k.schema, err = compile(w.Schema); err != nil {
				return nil, fmt.Errorf("workflow %s: schema: %w", w.ID, err)
			}
		}
		r.known[w.ID] = k
	}
	return r, nil
}

// IDs are the ids of all workflows, sorted.
func (r *Registry) IDs() []string { return slices.Sorted(maps.Keys(r.known)) }

// maxID bounds an id, in characters.
const maxID = 190

// CheckID refuses an id that no workflow can have.
func CheckID(id string) error {
	if id == "" || len(id) > maxID || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fmt.Errorf("workflow id %q: it is 1 to %d printable ASCII characters without spaces", id[:min(len(id), maxID)], maxID)
	}
	return nil
}

// compile reads a schema. It may refer to itself only: nothing is loaded from files or from the network.
func compile(text json.RawMessage) (*jsonschema.Schema, error) {
	const place = "workflow:schema"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	c.AssertFormat()
	if err := c.AddResource(place, doc); err != nil {
		return nil, err
	}
	return c.Compile(place)
}

// Check reports whether a request fits a workflow. Errors: ErrUnknown, *PayloadError.
func (r *Registry) Check(id string, q Request) error {
	_, _, err := r.find(id, q)
	return err
}

// find returns a workflow and the payload that it is given.
func (r *Registry) find(id string, q Request) (Workflow, json.RawMessage, error) {
	w, ok := r.known[id]
	if !ok {
		return Workflow{}, nil, fmt.Errorf("%w %q", ErrUnknown, id)
	}
	payload, err := w.payload(q)
	return w.Workflow, payload, err
}

// payload is the request's payload with the userText in its place, if it fits the schema.
func (k known) payload(q Request) (json.RawMessage, error) {
	text := q.Payload
	if len(text) == 0 || string(text) == "null" {
		text = json.RawMessage("{}")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, &PayloadError{Problem: err.Error()}
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, &PayloadError{Problem: "is not an object"}
	}
	if _, given := object[k.Text]; k.Text != "" && !given && q.UserText != "" {
		object[k.Text] = q.UserText
		if text, err = json.Marshal(object); err != nil {
			return nil, &PayloadError{Problem: err.Error()}
		}
	}
	if k.schema == nil {
		return text, nil
	}
	var wrong *jsonschema.ValidationError
	if err := k.schema.Validate(object); errors.As(err, &wrong) {
		return nil, problemOf(wrong)
	} else if err != nil {
		return nil, &PayloadError{Problem: err.Error()}
	}
	return text, nil
}

// maxProblem bounds the words about a problem: a schema's message may quote the payload.
const maxProblem = 300

// problemOf is the innermost problem of a validation, the first by its path.
func problemOf(err *jsonschema.ValidationError) *PayloadError {
	if len(err.Causes) == 0 {
		return problemAt(err)
	}
	all := make([]*PayloadError, len(err.Causes))
	for i, cause := range err.Causes {
		all[i] = problemOf(cause)
	}
	return slices.MinFunc(all, func(a, b *PayloadError) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Problem, b.Problem))
	})
}

// problemAt is a problem in words.
func problemAt(err *jsonschema.ValidationError) *PayloadError {
	e := &PayloadError{Problem: taskstate.Shorten(err.ErrorKind.LocalizedString(message.NewPrinter(language.English)), maxProblem)}
	for _, step := range err.InstanceLocation {
		e.Path += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step)
	}
	return e
}
