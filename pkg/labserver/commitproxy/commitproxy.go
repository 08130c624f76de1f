// Package commitproxy cuts connections to a database at their COMMITs.
package commitproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// maxFrame bounds one message of a client, so that a misread length is an error and not a full memory.
const maxFrame = 256 << 20

// swallowLimit is how long the lost answer of a COMMIT is waited for before the client's side is closed all the same.
const swallowLimit = 5 * time.Second

// marks name a transaction by what its log row says; the first one that is found counts.
var marks = []string{"ACCEPTED", "TAKEOVER", "CLAIMED", "DONE", "FAILED", "HANDED_BACK"}

// Cut is one COMMIT that got no answer.
type Cut struct {
	What string // one of the reasons of the log (ACCEPTED, CLAIMED, DONE, …), "other" for a transaction without a log row
	Done bool   // the server committed and the answer was lost; false: the COMMIT itself was lost
}

// Proxy stands between its clients and MariaDB or Postgres, reads what clients send, and cuts connections at their
// COMMITs: before the server sees it, or after the server has done it. The client cannot tell which.
type Proxy struct {
	Addr string // what services are told

	upstream string
	postgres bool
	listener net.Listener
	group    sync.WaitGroup

	mu     sync.Mutex
	when   func() (hit, done bool) // asked at each COMMIT; nil: none is cut
	seen   map[string]int          // COMMITs by what they were
	cuts   map[Cut]int
	conns  map[net.Conn]bool
	closed bool
}

// New passes everything to upstream until Cut says otherwise. Close it.
func New(upstream string, postgres bool) (*Proxy, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("commit proxy: %w", err)
	}
	p := &Proxy{
		Addr: l.Addr().String(), upstream: upstream, postgres: postgres, listener: l,
		seen: map[string]int{}, cuts: map[Cut]int{}, conns: map[net.Conn]bool{},
	}
	p.group.Go(p.serve)
	return p, nil
}

// Cut cuts each COMMIT with that chance, 0 to 1, drawn from random, half of them after the server has done it. 0 ends all cuts.
func (p *Proxy) Cut(chance float64, random *rand.Rand) {
	p.set(func() (hit, done bool) {
		hit = chance > 0 && random.Float64() < chance
		return hit, hit && random.IntN(2) == 0
	})
}

// CutNext cuts the next COMMIT, and none after it.
func (p *Proxy) CutNext(done bool) {
	p.set(func() (bool, bool) {
		p.when = nil
		return true, done
	})
}

func (p *Proxy) set(when func() (hit, done bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.when = when
}

// Cuts counts what was cut so far.
func (p *Proxy) Cuts() map[Cut]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.cuts)
}

// Seen counts all COMMITs so far by what they were.
func (p *Proxy) Seen() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close() // nothing to lose
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.group.Wait()
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.pass(client) })
	}
}

// pass runs one connection until either side ends.
func (p *Proxy) pass(client net.Conn) {
	var d net.Dialer
	server, err := d.DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		_ = client.Close() // as a server that is not there
		return
	}
	if !p.keep(client, server) {
		return
	}
	defer p.drop(client, server)
	l := &link{client: client, server: server, answered: make(chan struct{})}
	p.group.Go(func() { l.answers() })
	_ = p.requests(l) // the end of a connection is no news
}

// keep notes connections for Close; false: it was called already.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return !p.closed
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	swallow        atomic.Bool   // what the server sends is kept from the client
	answered       chan struct{} // closed when the server's side has ended
}

// answers passes what the server sends, until an answer is to be kept back.
func (l *link) answers() {
	defer close(l.answered)
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if n > 0 && !l.swallow.Load() {
			if _, err := l.client.Write(buf[:n]); err != nil {
				_ = l.server.Close() // ends the other direction too
				return
			}
		}
		if err != nil {
			_ = l.client.Close()
			return
		}
	}
}

// requests passes what the client sends, message by message, until a COMMIT is cut.
func (p *Proxy) requests(l *link) error {
	in := bufio.NewReaderSize(l.client, 64<<10)
	next := mysqlFrame
	if p.postgres {
		if err := startup(in, l.server); err != nil {
			return err
		}
		next = postgresFrames()
	}
	what := ""
	for {
		frame, body, err := next(in)
		if err != nil {
			return err
		}
		if what = note(what, body); commits(body) {
			cut, hit := p.decide(what)
			what = ""
			if hit {
				return l.cut(frame, cut.Done, p.quit())
			}
		}
		if _, err := l.server.Write(frame); err != nil {
			return err
		}
	}
}

// commits reports whether a text is a COMMIT, or ends with one.
func commits(body []byte) bool {
	last := bytes.TrimSpace(body[bytes.LastIndexByte(body, ';')+1:])
	return bytes.EqualFold(last, []byte("COMMIT"))
}

// quit is the message by which a client ends a connection: the server first does all that came before it.
func (p *Proxy) quit() []byte {
	if p.postgres {
		return []byte{'X', 0, 0, 0, 4}
	}
	return []byte{1, 0, 0, 0, 1}
}

// note keeps the first mark of the transaction under way.
func note(what string, body []byte) string {
	for _, end := range []string{"ROLLBACK", "START TRANSACTION", "BEGIN"} {
		if len(body) < len(end)+24 && bytes.HasPrefix(bytes.ToUpper(body), []byte(end)) {
			return ""
		}
	}
	if what != "" {
		return what
	}
	for _, mark := range marks {
		if bytes.Contains(body, []byte(mark)) {
			return mark
		}
	}
	return ""
}

// decide draws whether this COMMIT is cut, and where.
func (p *Proxy) decide(what string) (Cut, bool) {
	if what == "" {
		what = "other"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[what]++
	if p.when == nil {
		return Cut{}, false
	}
	hit, done := p.when()
	c := Cut{What: what, Done: done}
	if hit {
		p.cuts[c]++
	}
	return c, hit
}

// cut ends the connection; when done is true the server commits first.
func (l *link) cut(commit []byte, done bool, quit []byte) error {
	defer l.client.Close() //nolint:errcheck // its end is the fault
	if !done {
		return errors.New("the COMMIT is lost")
	}
	l.swallow.Store(true)
	if _, err := l.server.Write(append(commit, quit...)); err != nil {
		return err
	}
	late := time.NewTimer(swallowLimit)
	defer late.Stop()
	select {
	case <-l.answered:
	case <-late.C:
	}
	return errors.New("the answer is lost")
}

// mysqlFrame reads one packet. body is the text of a COM_QUERY and nil for anything else: the packets of a login have
// sequence numbers above 0.
func mysqlFrame(in *bufio.Reader) (frame, body []byte, err error) {
	head, err := in.Peek(4)
	if err != nil {
		return nil, nil, err
	}
	size := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	first := head[3] == 0
	frame = make([]byte, 4+size)
	if _, err := io.ReadFull(in, frame); err != nil {
		return nil, nil, err
	}
	if first && size > 1 && frame[4] == 3 {
		body = frame[5:]
	}
	return frame, body, nil
}

// postgresFrames reads messages one by one. body is the text of a Query, or all of a Parse or a Bind, which has the values of a statement. A
// prepared COMMIT is done with its Execute: that has its text as body.
func postgresFrames() func(in *bufio.Reader) (frame, body []byte, err error) {
	prepared, bound := map[string]bool{}, false // the statements that are COMMITs, and whether the last Bind names one
	return func(in *bufio.Reader) (frame, body []byte, err error) {
		head, err := in.Peek(5)
		if err != nil {
			return nil, nil, err
		}
		kind, size := head[0], binary.BigEndian.Uint32(head[1:])
		if size < 4 || size > maxFrame {
			return nil, nil, fmt.Errorf("message of %d bytes", size)
		}
		frame = make([]byte, 1+size)
		if _, err := io.ReadFull(in, frame); err != nil {
			return nil, nil, err
		}
		body = frame[5:]
		first, rest, _ := bytes.Cut(body, []byte{0})
		second, _, _ := bytes.Cut(rest, []byte{0})
		switch kind {
		case 'Q':
			body = first
		case 'P': // name, text
			prepared[string(first)] = commits(second)
		case 'B': // portal, name
			bound = prepared[string(second)]
		case 'E':
			if body = nil; bound {
				body = []byte("COMMIT")
			}
		default:
			body = nil
		}
		return frame, body, nil
	}
}

// startup passes the first message of a Postgres connection, which has no kind.
func startup(in *bufio.Reader, server io.Writer) error {
	head, err := in.Peek(4)
	if err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head)
	if size < 8 || size > 1<<20 {
		return fmt.Errorf("startup message of %d bytes", size)
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(in, frame); err != nil {
		return err
	}
	_, err = server.Write(frame)
	return err
}
