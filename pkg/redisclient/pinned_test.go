package redisclient

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A command that was sent again is not used for the next one: the writer of the connection that failed may read it still. It is
// the race detector that fails this test.
func TestACommandThatWasSentAgainIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	option, err := clientOption(address{hosts: []string{"none:1"}, embedded: true})
	option.ForceSingleClient = true
	require.NoError(t, err)
	var dials atomic.Int64
	option.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
		return &script{fails: dials.Add(1) == 1, answers: make(chan string, 1000), closed: make(chan struct{})}, nil
	}
	client, err := connect(option)
	require.NoError(t, err)
	defer client.Close()
	for range 50 { // the pool of commands forgets some under the race detector
		require.NoError(t, client.Do(t.Context(), client.B().Get().Key("a").Build()).Error())
	}
	require.Greater(t, dials.Load(), int64(1), "the first connection has failed")
}

// script is a connection to nobody. It answers every command with OK. One that fails takes the first GET and ends while that is
// being written.
type script struct {
	fails   bool
	stuck   bool // in the write of the GET; the race detector must not see that anybody knows
	answers chan string
	closed  chan struct{}
	left    string
}

func (s *script) Write(b []byte) (int, error) {
	if text := string(b); s.fails && strings.Contains(text, "GET") {
		s.getStuck()
		<-s.closed
		return 0, net.ErrClosed
	}
	for range strings.Count(string(b), "*") {
		s.answers <- "+OK\r\n"
	}
	return len(b), nil
}

func (s *script) Read(b []byte) (int, error) {
	for s.left == "" {
		select {
		case s.left = <-s.answers:
		case <-s.closed:
			return 0, net.ErrClosed
		default:
			if s.isStuck() {
				return 0, io.EOF
			}
			runtime.Gosched()
		}
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

//go:norace
func (s *script) getStuck() { s.stuck = true }

//go:norace
func (s *script) isStuck() bool { return s.stuck }

func (s *script) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

func (*script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }
