package world

import (
	"errors"

	"github.com/millweir/millweir/scripts/lab/proxy"
)

// Net is the proxies of a world, one for each server; Embed is nil without a fake embedding service.
type Net struct {
	SQL, Redis, Chroma, Embed *proxy.Proxy
}

// startProxies puts what Options asks for in front of the servers.
func (w *World) startProxies() (err error) {
	if w.SQL == nil || w.Chroma == nil || (w.Redis == nil && w.hasRedis()) {
		return nil // startServers has said why
	}
	if w.opts.Proxied {
		if w.Net, err = w.newNet(); err != nil {
			return err
		}
	}
	if w.opts.CutCommits {
		if w.Commits, err = proxy.NewCommitProxy(w.near(w.SQL.Addr), w.opts.Postgres); err != nil {
			return err
		}
	}
	if w.opts.ChromaHTTP {
		w.ChromaHTTP, err = proxy.NewHTTPProxy(w.near(w.Chroma.Addr))
	}
	return err
}

// near is the address of the proxy in front of a server, or the server's own.
func (w *World) near(addr string) string {
	if w.Net == nil {
		return addr
	}
	return w.Net.near(addr)
}

// newNet puts a proxy in front of each server of the world.
func (w *World) newNet() (*Net, error) {
	n, redis := &Net{}, ""
	if w.Redis != nil {
		redis = w.Redis.Addr
	}
	for _, s := range []struct {
		to         **proxy.Proxy
		name, addr string
	}{
		{&n.SQL, "sql", w.SQL.Addr}, {&n.Redis, "redis", redis}, {&n.Chroma, "chroma", w.Chroma.Addr}, {&n.Embed, "embed", w.embedHost()},
	} {
		if s.addr == "" {
			continue
		}
		p, err := proxy.NewProxy(s.name, s.addr)
		if err != nil {
			n.close()
			return nil, err
		}
		*s.to = p
	}
	return n, nil
}

// near is the address of the proxy in front of a server, or the server's own.
func (n *Net) near(addr string) string {
	for _, p := range n.All() {
		if p.Upstream() == addr {
			return p.Addr
		}
	}
	return addr
}

// All are those that there are, in a fixed order.
func (n *Net) All() []*proxy.Proxy {
	var out []*proxy.Proxy
	for _, p := range []*proxy.Proxy{n.SQL, n.Redis, n.Chroma, n.Embed} {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// Heal ends every fault of every proxy.
func (n *Net) Heal() error {
	var errs []error
	for _, p := range n.All() {
		errs = append(errs, p.Heal())
	}
	return errors.Join(errs...)
}

func (n *Net) close() {
	for _, p := range n.All() {
		p.Close()
	}
}
