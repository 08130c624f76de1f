package admin

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

// A file of unfinished tasks has a JSON object a line, in the order of the tasks' ids:
//
//	{"envelope":{…},"requestHash":"…","sha256":"…"}   a task, as its copy in RabbitMQ has it
//	{"tasks":2,"sha256":"…"}                          the last line: how many there were
//
// sha256 is that of the line's bytes before its comma; in the last line, that of all of the file before that.
const (
	sumMember   = `,"sha256":"`
	longestLine = pb.MaxEnvelope + 4096
)

// pendingLine is a line of the file without its checksum.
type pendingLine struct {
	Envelope    json.RawMessage `json:"envelope"`
	RequestHash string          `json:"requestHash"` // of the request with the idempotency key, which the envelope does not have
	Tasks       *int            `json:"tasks"`
}

// pendingWriter writes the file.
type pendingWriter struct {
	w   io.Writer
	all hash.Hash
	n   int
}

func newPendingWriter(w io.Writer) *pendingWriter { return &pendingWriter{w: w, all: sha256.New()} }

// add writes a task. An error of package proto says that it has no envelope.
func (p *pendingWriter) add(t taskstate.Task) error {
	envelope, err := pb.Encode(ingestq.EnvelopeOf(t))
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, `{"envelope":%s`, envelope)
	if t.RequestHash != "" {
		text = fmt.Appendf(text, `,"requestHash":%q`, t.RequestHash)
	}
	p.n++
	_, err = fmt.Fprintf(io.MultiWriter(p.w, p.all), "%s%s%x\"}\n", text, sumMember, sha256.Sum256(text))
	return err
}

// end writes the last line.
func (p *pendingWriter) end() error {
	text := fmt.Appendf(nil, `{"tasks":%d`, p.n)
	_, _ = p.all.Write(text) // a hash takes everything
	_, err := fmt.Fprintf(p.w, "%s%s%x\"}\n", text, sumMember, p.all.Sum(nil))
	return err
}

// pendingReader reads the file.
type pendingReader struct {
	lines  *bufio.Scanner
	all    hash.Hash
	number int // of the last line
	n      int // tasks so far
	last   string
	ended  bool
}

func newPendingReader(r io.Reader) *pendingReader {
	p := &pendingReader{lines: bufio.NewScanner(r), all: sha256.New()}
	p.lines.Buffer(nil, longestLine)
	return p
}

var (
	errForeign = errors.New("it is no line of an export")
	errSum     = errors.New("its checksum is not that of its text: it was changed or cut off")
)

// next returns the next task; io.EOF after the last line, if the file is whole. Other errors say in which line what is wrong: nothing
// after it can be believed.
func (p *pendingReader) next() (taskstate.Task, error) {
	if !p.lines.Scan() {
		switch err := p.lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			p.number++
			return taskstate.Task{}, p.wrong(errForeign)
		case err != nil:
			return taskstate.Task{}, err
		case !p.ended:
			return taskstate.Task{}, fmt.Errorf("the last line is missing: the file was cut off after line %d", p.number)
		}
		return taskstate.Task{}, io.EOF
	}
	p.number++
	t, err := p.read(p.lines.Bytes())
	if err != nil {
		return taskstate.Task{}, p.wrong(err)
	}
	if p.ended {
		return p.next()
	}
	return t, nil
}

func (p *pendingReader) wrong(err error) error { return fmt.Errorf("line %d: %w", p.number, err) }

// read reads one line.
func (p *pendingReader) read(line []byte) (taskstate.Task, error) {
	if p.ended {
		return taskstate.Task{}, errors.New("it comes after the last line of the export")
	}
	at := bytes.LastIndex(line, []byte(sumMember))
	if at < 0 {
		if len(line) > 0 && line[0] == '{' && !json.Valid(line) {
			return taskstate.Task{}, errSum
		}
		return taskstate.Task{}, errForeign
	}
	var l pendingLine
	text, said := line[:at], bytes.TrimSuffix(line[at+len(sumMember):], []byte(`"}`))
	malformed := json.Unmarshal(line, &l) != nil
	sum := sha256.Sum256(text)
	if l.Tasks != nil {
		_, _ = p.all.Write(text)
		p.all.Sum(sum[:0])
	}
	if hex.EncodeToString(sum[:]) != string(said) {
		if l.Tasks != nil {
			return taskstate.Task{}, fmt.Errorf("it counts %d tasks, the file has %d, or they are others than were exported", *l.Tasks, p.n)
		}
		return taskstate.Task{}, errSum
	}
	if malformed || l.Tasks == nil && l.Envelope == nil {
		return taskstate.Task{}, errForeign
	}
	if p.ended = l.Tasks != nil; p.ended {
		return taskstate.Task{}, nil
	}
	e, err := pb.Decode(l.Envelope)
	if err != nil {
		return taskstate.Task{}, fmt.Errorf("%w: %w", errForeign, err)
	}
	t := ingestq.TaskOf(e)
	if t.ID <= p.last {
		return taskstate.Task{}, fmt.Errorf("task %s comes after %s: lines stand in the order of their ids", t.ID, p.last)
	}
	t.RequestHash, p.last = l.RequestHash, t.ID
	p.n++
	_, _ = p.all.Write(append(bytes.Clone(line), '\n'))
	return t, nil
}
