package workflows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"github.com/millweir/millweir/pkg/workflow"
)

// The codes of failures of addresses.
const (
	CodeURLForbidden = "URL_FORBIDDEN" // permanent: no http(s), or an address that is not public
	CodeURLRefused   = "URL_REFUSED"   // permanent: the server has nothing there for us
	CodeURLFailed    = "URL_FAILED"    // tried again
)

const (
	fetchTime    = 280 * time.Second // of one fetch: below the stall limit that is the default
	connectTime  = 10 * time.Second
	answerTime   = 60 * time.Second
	maxRedirects = 5
	userAgent    = "Millweir"
)

// Networks are networks from which ingest.url fetches although they are not public.
type Networks []netip.Prefix

// ParseNetworks reads networks in CIDR form, with commas between them.
func ParseNetworks(text string) (out Networks, err error) {
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("%q is no network such as 10.0.0.0/8", part)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// fetcher reads what is at an address. Each connection's address is judged when it is dialed, after its name was looked up, and so
// is that of each redirect.
type fetcher struct{ client *http.Client }

func newFetcher(networks Networks) *fetcher {
	var v4, v6 []netip.Prefix
	for _, n := range networks {
		if n.Addr().Is4() {
			v4 = append(v4, n)
		} else {
			v6 = append(v6, n)
		}
	}
	guard := ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...))
	dialer := &net.Dialer{Timeout: connectTime, Control: guard.Safe}
	return &fetcher{client: &http.Client{
		Timeout: fetchTime,
		Transport: &http.Transport{ // without a proxy: it would be the one address that is judged
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: connectTime, ResponseHeaderTimeout: answerTime,
			DisableKeepAlives: true, MaxResponseHeaderBytes: 1 << 20,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return refused("more than %d redirects", maxRedirects)
			}
			return checkURL(r.URL)
		},
	}}
}

// checkURL refuses addresses that are none of the web.
func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return forbidden("the address has the scheme %q: allowed are http and https", u.Scheme)
	case u.Host == "":
		return forbidden("the address names no host")
	case u.User != nil:
		return forbidden("the address has a login in it")
	}
	return nil
}

func forbidden(format string, args ...any) error {
	return workflow.Permanent(CodeURLForbidden, "This address may not be fetched.", format, args...)
}

func refused(format string, args ...any) error {
	return workflow.Permanent(CodeURLRefused, "The server does not give what is at this address.", format, args...)
}

// open returns a name for the file and its bytes; the caller closes them.
func (f *fetcher) open(ctx context.Context, address string) (name string, body io.ReadCloser, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, forbidden("the address cannot be read: %s", err)
	}
	if err := checkURL(u); err != nil {
		return "", nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", nil, forbidden("%s", err)
	}
	request.Header.Set("User-Agent", userAgent)
	answer, err := f.client.Do(request)
	if err != nil {
		return "", nil, failed(err)
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return "", nil, workflow.Judge(answer, nil, time.Now(), CodeURLFailed, CodeURLRefused)
	}
	return nameOf(answer), &fetched{answer.Body}, nil
}

// failed turns an error that came before any response into what becomes of the task.
func failed(err error) error {
	var known *workflow.Failure
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, ssrf.ErrProhibitedIP), errors.Is(err, ssrf.ErrProhibitedNetwork):
		return forbidden("%s (INGEST_URL_NETWORKS names those that are allowed)", err)
	}
	return &workflow.Failure{Code: CodeURLFailed, Cause: err.Error(), Message: "The address could not be fetched."}
}

// fetched marks errors of a body.
type fetched struct{ io.ReadCloser }

func (r *fetched) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = failed(err)
	}
	return n, err
}

// extensions are those by which a reader knows a text's type when the name has none.
var extensions = map[string]string{
	"text/html": ".html", "application/xhtml+xml": ".html", "text/plain": ".txt", "text/markdown": ".md", "application/pdf": ".pdf",
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
}

// nameOf is the name that the server gives the file, or the last part of its address, or the host.
func nameOf(answer *http.Response) string {
	if _, p, err := mime.ParseMediaType(answer.Header.Get("Content-Disposition")); err == nil && p["filename"] != "" {
		return path.Base(p["filename"])
	}
	at := answer.Request.URL
	name := path.Base(at.Path)
	if name == "/" || name == "." {
		name = at.Hostname()
	}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if end := extensions[kind]; end != "" && !strings.HasSuffix(strings.ToLower(name), end) && (end == ".html" || path.Ext(at.Path) == "") {
		name += end
	}
	return name
}
