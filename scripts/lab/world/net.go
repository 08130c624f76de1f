package world

import (
	"errors"
	"slices"

	"github.com/millweir/millweir/pkg/labserver/commitproxy"
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
		if err := w.startNet(); err != nil {
			return err
		}
	}
	if w.opts.CutCommits {
		if w.Commits, err = commitproxy.New(w.near(w.SQL.Addr), w.opts.Postgres); err != nil {
			return err
		}
	}
	if w.opts.ChromaHTTP {
		w.ChromaHTTP, err = proxy.NewHTTPProxy(w.near(w.Chroma.Addr))
	}
	return err
}

// startNet puts a proxy in front of each server of the world.
func (w *World) startNet() (err error) {
	redis := ""
	if w.Redis != nil {
		redis = w.Redis.Addr
	}
	n := &Net{}
	w.Net = n // Close ends those that were started
	for _, s := range []struct {
		to         **proxy.Proxy
		name, addr string
	}{
		{&n.SQL, "sql", w.SQL.Addr}, {&n.Redis, "redis", redis}, {&n.Chroma, "chroma", w.Chroma.Addr}, {&n.Embed, "embed", w.embedHost()},
	} {
		if s.addr == "" {
			continue
		}
		if *s.to, err = proxy.NewProxy(s.name, s.addr); err != nil {
			return err
		}
	}
	return nil
}

// near is the address of the proxy in front of a server, or the server's own.
func (w *World) near(addr string) string {
	for _, p := range w.Net.All() {
		if p.Upstream() == addr {
			return p.Addr
		}
	}
	return addr
}

// All are those that there are, in a fixed order; a nil Net has none.
func (n *Net) All() []*proxy.Proxy {
	if n == nil {
		return nil
	}
	return slices.DeleteFunc([]*proxy.Proxy{n.SQL, n.Redis, n.Chroma, n.Embed}, func(p *proxy.Proxy) bool { return p == nil })
}

// Heal ends every fault of every proxy.
func (n *Net) Heal() error {
	var errs []error
	for _, p := range n.All() {
		errs = append(errs, p.Heal())
	}
	return errors.Join(errs...)
}
