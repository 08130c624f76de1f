package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
)

// AuthMode says how callers prove who they are.
type AuthMode string

// The modes. With keys tokens are taken too when they are configured; none is for one person on one machine.
const (
	AuthNone AuthMode = "none"
	AuthKeys AuthMode = "keys"
)

// formOverhead is what boundaries, headers and fields may add to the files of a request.
const formOverhead = 1 << 20

// Config holds the settings of the HTTP side (contract §7).
type Config struct {
	Addr                  string        `envconfig:"HTTP_ADDR" default:"127.0.0.1:8081" desc:"address of the API, host:port; port 0 picks a free one"`
	AuthMode              AuthMode      `envconfig:"AUTH_MODE" default:"keys" allowed:"none|keys" desc:"keys: API keys, and tokens when JWT_SECRET or JWKS_URL is set; none: everyone is the operator local, only on loopback addresses"`
	AuthFailLimit         int           `envconfig:"AUTH_FAIL_LIMIT" default:"30" allowed:"0..1000000" desc:"failed logins of one address per window before its unknown keys are refused unseen; 0: no limit"`
	AuthFailWindow        int           `envconfig:"AUTH_FAIL_WINDOW_SECONDS" default:"60" allowed:"1..86400" desc:"the window of AUTH_FAIL_LIMIT, seconds"`
	TrustedProxies        []string      `envconfig:"TRUSTED_PROXIES" desc:"addresses or networks whose X-Forwarded-For, -Proto and -Prefix are believed, comma separated; empty: none"`
	MetricsPublic         bool          `envconfig:"METRICS_PUBLIC" default:"false" desc:"metrics on HTTP_ADDR without the operator role"`
	TraceURL              string        `envconfig:"OTEL_UI_URL" desc:"address of a trace in the tracing backend, with {traceId} in it: explanations of tasks link to it; empty: no link"`
	UploadMaxBytes        int64         `envconfig:"UPLOAD_MAX_BYTES" default:"104857600" allowed:"1.." desc:"largest file, bytes"`
	UploadMaxRequestBytes int64         `envconfig:"UPLOAD_MAX_REQUEST_BYTES" default:"1073741824" allowed:"0.." desc:"largest sum of the files of one request, bytes; at least UPLOAD_MAX_BYTES counts"`
	UploadRateLimit       int           `envconfig:"UPLOAD_RATE_LIMIT" default:"0" allowed:"0..1000000" desc:"files that one user, and one address, may send per window; 0: no limit"`
	UploadRateWindow      int           `envconfig:"UPLOAD_RATE_WINDOW_SECONDS" default:"60" allowed:"1..86400" desc:"the window of UPLOAD_RATE_LIMIT, seconds"`
	UploadIdleTimeout     time.Duration `envconfig:"UPLOAD_IDLE_TIMEOUT" default:"60s" allowed:"1s..1h" desc:"an upload that sends nothing for that long is ended"`
	UploadMaxDuration     time.Duration `envconfig:"UPLOAD_MAX_DURATION" default:"4h" allowed:"1m..12h" desc:"an upload request that is not received by then is ended; files without a row are swept after 24 hours"`
	UploadMinRate         int64         `envconfig:"UPLOAD_MIN_BYTES_PER_SECOND" default:"1024" allowed:"0..1073741824" desc:"an upload that is slower on average, after its first minute, is ended; 0: no limit"`
	EventsMaxClients      int           `envconfig:"EVENTS_MAX_CLIENTS" default:"10000" allowed:"1.." desc:"open event streams of this process at most"`
	EventsMaxPerUser      int           `envconfig:"EVENTS_MAX_CLIENTS_PER_USER" default:"2000" allowed:"0..1000000" desc:"open event streams of one user in this process at most; 0: no limit but EVENTS_MAX_CLIENTS"`
	UploadMaxOpenPerUser  int           `envconfig:"UPLOAD_MAX_OPEN_PER_USER" default:"256" allowed:"0..1000000" desc:"upload requests of one user that are being received by this process at once; 0: no limit"`
	UploadMaxBytesPerUser int64         `envconfig:"UPLOAD_MAX_BYTES_PER_USER" default:"4294967296" allowed:"0.." desc:"bytes that the open upload requests of one user hold in this process at most; one whole request always counts; 0: no limit"`
	ShutdownGrace         time.Duration `envconfig:"SHUTDOWN_GRACE" default:"20s" allowed:"0s..10m" desc:"how long requests in flight may go on at a stop"`
}

// Validate returns every problem of the settings, joined; each begins with the variable's name.
func (c Config) Validate() error {
	errs := []error{process.CheckAllowed(c)}
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		errs = append(errs, fmt.Errorf("HTTP_ADDR %q is not host:port", c.Addr))
	} else if c.AuthMode == AuthNone && !loopback(host) {
		errs = append(errs, fmt.Errorf("AUTH_MODE none is allowed on loopback addresses only, and HTTP_ADDR is %q: "+
			"set AUTH_MODE=keys, or HTTP_ADDR=127.0.0.1:8081", c.Addr))
	}
	if u, err := url.Parse(c.TraceURL); c.TraceURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.Contains(c.TraceURL, views.TraceMark)) {
		errs = append(errs, fmt.Errorf("OTEL_UI_URL %q is not an http or https address with %s in it", c.TraceURL, views.TraceMark))
	}
	if _, err := c.proxies(); err != nil {
		errs = append(errs, fmt.Errorf("TRUSTED_PROXIES: %w", err))
	}
	return errors.Join(errs...)
}

// requestLimit is the most bytes of a multipart request.
func (c Config) requestLimit() int64 {
	return max(c.UploadMaxBytes, c.UploadMaxRequestBytes) + formOverhead
}

// proxies is TRUSTED_PROXIES without empty entries; an entry that is no address and no network is an error.
func (c Config) proxies() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, p := range c.TrustedProxies {
		p = strings.TrimSpace(p)
		if p == "" {
			continue
		}
		network, err := netip.ParsePrefix(p)
		if addr, notAddr := netip.ParseAddr(p); notAddr == nil {
			network, err = addr.Unmap().Prefix(addr.Unmap().BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a network", p)
		}
		out = append(out, network)
	}
	return out, nil
}

// loopback reports whether a host name means this machine alone.
func loopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
