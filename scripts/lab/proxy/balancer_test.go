package proxy_test

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/scripts/lab/proxy"
)

// greeter is a server that says its name and waits for the client's end.
func greeter(t *testing.T, name string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close() //nolint:errcheck // it only says its name
				_, _ = io.WriteString(conn, name)
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	return l
}

func TestABalancerTakesTheFirstServerThatIsThere(t *testing.T) {
	t.Parallel()
	first, second := greeter(t, "1").Addr().String(), greeter(t, "2").Addr().String()
	const nobody = "127.0.0.1:1" // of a port that was free a moment ago that is not known
	balancer := func(servers ...string) *proxy.Balancer {
		b, err := proxy.NewBalancer(servers...)
		require.NoError(t, err)
		return b
	}
	met := func(b *proxy.Balancer) string {
		conn, err := net.Dial("tcp", b.Addr)
		require.NoError(t, err)
		defer conn.Close() //nolint:errcheck // only read
		name := make([]byte, 1)
		_, _ = io.ReadFull(conn, name)
		return string(name)
	}
	gone := balancer(nobody, second, first)
	defer gone.Close()
	require.Equal(t, "2", met(gone))
	b := balancer(first, second)
	require.Equal(t, "1", met(b))
	open, err := net.Dial("tcp", b.Addr)
	require.NoError(t, err)
	b.Close()
	_, err = io.ReadAll(open)
	_ = err // reset or end: it is over
	require.NoError(t, open.Close())
}
