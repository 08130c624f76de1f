package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/goccy/go-yaml"
)

// entry is one workflow of a file.
type entry struct {
	ID             string            `yaml:"id"`
	Kind           string            `yaml:"kind"` // http
	URL            string            `yaml:"url"`
	Headers        map[string]string `yaml:"headers"`
	TimeoutSeconds int               `yaml:"timeoutSeconds"` // 0: defaultTimeout
	Schema         any               `yaml:"schema"`
}

const (
	defaultTimeout = 60 * time.Second
	maxTimeout     = 280 // seconds: below the stall limit that is the default
	kindHTTP       = "http"
)

// Load reads the workflows of a file (WORKFLOWS_FILE): YAML or JSON, an object whose member `workflows` is a list. An empty path has
// none. Errors name the entry and what is allowed.
func Load(path string) ([]Workflow, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Workflows []entry `yaml:"workflows"`
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	out := make([]Workflow, len(file.Workflows))
	for i, e := range file.Workflows {
		if out[i], err = e.workflow(); err != nil {
			return nil, fmt.Errorf("workflow %d (%s): %w", i+1, e.ID, err)
		}
	}
	if _, err := New(out...); err != nil { // ids and schemas
		return nil, err
	}
	return out, nil
}

// workflow checks an entry.
func (e entry) workflow() (Workflow, error) {
	at, err := url.Parse(e.URL)
	switch {
	case e.Kind != kindHTTP:
		return Workflow{}, fmt.Errorf("kind %q: there is only %s", e.Kind, kindHTTP)
	case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "":
		return Workflow{}, errors.New("url: an address with http:// or https:// is expected")
	case e.TimeoutSeconds < 0 || e.TimeoutSeconds > maxTimeout:
		return Workflow{}, fmt.Errorf("timeoutSeconds %d: allowed are 1 to %d", e.TimeoutSeconds, maxTimeout)
	}
	timeout := time.Duration(e.TimeoutSeconds) * time.Second
	if timeout == 0 {
		timeout = defaultTimeout
	}
	w := Workflow{ID: e.ID}
	if e.Schema != nil {
		if w.Schema, err = json.Marshal(e.Schema); err != nil {
			return Workflow{}, fmt.Errorf("schema: %w", err)
		}
	}
	headers := http.Header{}
	for name, value := range e.Headers {
		headers.Set(name, value)
	}
	w.Run = newRemote(e.URL, headers, timeout).run
	return w, nil
}
