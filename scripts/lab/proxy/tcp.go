// Package proxy stands between the services and their servers and goes wrong when told to.
package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// The ways in which a Proxy can be told to go wrong, in the names of toxiproxy.
const (
	toxicLatency = "latency"
	toxicReset   = "reset_peer"
	toxicTimeout = "timeout"
	toxicForget  = "forget" // ours
)

// forgetWindow is how long after Forget a connection still counts as an old one.
const forgetWindow = 500 * time.Millisecond

// Proxy stands between the services and one server. Its faults hold for connections that are open and for new ones;
// each takes the place of the one before. Its methods are not safe for concurrent use with each other.
type Proxy struct {
	Name string // of the server behind it: sql, redis, chroma, embed
	Addr string // what services are told

	toxi *toxiproxy.Proxy
}

// NewProxy listens on a loopback address of its own and passes all to upstream, host:port. Close it.
func NewProxy(name, upstream string) (*Proxy, error) {
	registerToxics()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{Name: name, toxi: toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream)}
	if err := p.toxi.Start(); err != nil {
		return nil, fmt.Errorf("proxy of %s: %w", name, err)
	}
	p.Addr = p.toxi.Listen // the port stays over Refuse
	return p, nil
}

// Slow makes each answer come later by delay, give or take jitter.
func (p *Proxy) Slow(delay, jitter time.Duration) error {
	return p.replace(toxic{toxicLatency, "downstream", map[string]int64{"latency": delay.Milliseconds(), "jitter": jitter.Milliseconds()}})
}

// Cut closes each connection as soon as the server answers on it: the request was done, its answer is lost.
func (p *Proxy) Cut() error {
	return p.replace(toxic{toxicReset, "downstream", map[string]int64{"timeout": 0}})
}

// Silence makes every connection half-open: it is accepted and stays, and nothing passes in either direction.
// What was sent meanwhile is lost; Heal closes these connections.
func (p *Proxy) Silence() error {
	none := map[string]int64{"timeout": 0}
	return p.replace(toxic{toxicTimeout, "upstream", none}, toxic{toxicTimeout, "downstream", none})
}

// Forget makes the connections that are open half-open for as long as they live, and lets new ones work: what a firewall
// does that lost its table. Heal closes them all.
func (p *Proxy) Forget() error {
	before := map[string]int64{"before": time.Now().Add(forgetWindow).UnixMilli()}
	return p.replace(toxic{toxicForget, "upstream", before}, toxic{toxicForget, "downstream", before})
}

// Refuse closes all connections and refuses new ones, as a server that is not running. A child that this process forks just then
// has the listening socket too, until its exec has closed that, and the kernel takes connections for it as long: Refuse waits until
// it refuses one.
func (p *Proxy) Refuse() {
	p.toxi.Stop()
	for {
		c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.Addr)
		if err != nil {
			return
		}
		_ = c.Close() // of a listener that nobody accepts from
	}
}

// Heal ends every fault.
func (p *Proxy) Heal() error {
	p.toxi.Toxics.ResetToxics(context.Background())
	if err := p.toxi.Start(); err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		return fmt.Errorf("proxy of %s: %w", p.Name, err)
	}
	return nil
}

// Upstream is what the proxy passes to, host:port.
func (p *Proxy) Upstream() string { return p.toxi.Upstream }

// Close ends the proxy and its connections.
func (p *Proxy) Close() { p.toxi.Stop() }

// toxic is one of toxiproxy's own descriptions of a fault.
type toxic struct {
	Type       string           `json:"type"`
	Stream     string           `json:"stream"`
	Attributes map[string]int64 `json:"attributes"`
}

func (p *Proxy) replace(faults ...toxic) error {
	if err := p.Heal(); err != nil {
		return err
	}
	for _, t := range faults {
		b, err := json.Marshal(t)
		if err != nil {
			return err
		}
		if _, err := p.toxi.Toxics.AddToxicJson(strings.NewReader(string(b))); err != nil {
			return fmt.Errorf("proxy of %s: %s: %w", p.Name, t.Type, err)
		}
	}
	return nil
}

// registerToxics adds ours to those of toxiproxy.
var registerToxics = sync.OnceFunc(func() { toxics.Register(toxicForget, new(forget)) })

// forget is silent on links that it met before a moment, and not there for later ones.
type forget struct {
	Before int64 `json:"before"` // Unix time, ms
}

// Pipe implements toxics.Toxic.
func (f *forget) Pipe(stub *toxics.ToxicStub) {
	if time.Now().UnixMilli() < f.Before {
		new(toxics.TimeoutToxic).Pipe(stub)
		return
	}
	new(toxics.NoopToxic).Pipe(stub)
}

// Cleanup implements toxics.CleanupToxic: bytes were lost on the old links, they must not come to life again.
func (f *forget) Cleanup(stub *toxics.ToxicStub) { stub.Close() }
