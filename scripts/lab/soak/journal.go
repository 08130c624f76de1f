package soak

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/scripts/lab/apiclient"
)

// journal is what all clients saw, as JSON lines. It is safe for concurrent use.
type journal struct {
	path     string
	watchers atomic.Int64

	mu    sync.Mutex
	file  *os.File
	out   *bufio.Writer
	lines *json.Encoder
	err   error
	calls map[string]int // requests by operation and outcome
}

// openJournal makes a new file.
func openJournal(path string) (*journal, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriterSize(file, 1<<20)
	return &journal{path: path, file: file, out: out, lines: json.NewEncoder(out), calls: map[string]int{}}, nil
}

// close writes the rest.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.err, j.out.Flush(), j.file.Close())
}

// watcher names a new client of event streams.
func (j *journal) watcher() string { return fmt.Sprintf("w%d", j.watchers.Add(1)) }

// call writes one request.
func (j *journal) call(c apiclient.Call) { j.write(c.Record()) }

// event writes one status that a watcher was shown.
func (j *journal) event(watcher, user string, e apiclient.Event) { j.write(e.Record(watcher, user)) }

func (j *journal) write(r fsck.ClientRecord) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls[r.Op+" "+string(r.Outcome)]++
	j.err = errors.Join(j.err, j.lines.Encode(r))
}

// summary is the requests by operation and outcome.
func (j *journal) summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for what, n := range j.calls {
		out = append(out, fmt.Sprintf("%s %d", what, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// problems are violations that a client saw with its own eyes; the first ones are kept.
type problems struct {
	mu  sync.Mutex
	all []string
	n   int
}

// maxProblems bounds what is kept.
const maxProblems = 20

func (p *problems) add(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n++; len(p.all) < maxProblems {
		p.all = append(p.all, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// err is all of it; nil: nothing.
func (p *problems) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == 0 {
		return nil
	}
	return fmt.Errorf("%d things went wrong under way:\n  %s", p.n, strings.Join(p.all, "\n  "))
}
