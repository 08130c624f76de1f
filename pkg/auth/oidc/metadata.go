package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/millweir/millweir/pkg/auth/token"
)

const (
	// metadataAge is how long the provider's metadata is used before it is fetched again.
	metadataAge = 10 * time.Minute
	// metadataPause is the shortest time between two fetches after a failure.
	metadataPause = 5 * time.Second
	// maxMetadata bounds it, bytes.
	maxMetadata = 1 << 20
	// requestTimeout bounds one request to the provider; a person waits for it.
	requestTimeout = 5 * time.Second
)

// metadata is what the provider says of itself (OpenID Connect Discovery, section 3), and what we made of that.
type metadata struct {
	Issuer           string   `json:"issuer"`
	AuthorizationURL string   `json:"authorization_endpoint"`
	TokenURL         string   `json:"token_endpoint"`
	KeySetURL        string   `json:"jwks_uri"`
	TokenAuth        []string `json:"token_endpoint_auth_methods_supported"`
	EndSessionURL    string   `json:"end_session_endpoint"`                           // of RP-Initiated Logout; empty: none that a browser may be sent to
	NamesItself      bool     `json:"authorization_response_iss_parameter_supported"` // RFC 9207

	tokens *token.IDVerifier
}

// client is what a person's log-in is sent to the provider with: no proxy, no redirect, an end.
func client() *http.Client {
	return &http.Client{
		Timeout:       requestTimeout,
		Transport:     &http.Transport{Proxy: nil, MaxIdleConns: 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// metadata returns what is known of the provider. While it cannot be fetched anew, what was known before is used.
// ErrUnavailable when nothing is known; ErrProvider when what it says is not fit.
func (p *Provider) metadata(ctx context.Context) (*metadata, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	fresh := p.known != nil && now.Sub(p.fetched) < metadataAge
	if fresh || !p.tried.IsZero() && now.Sub(p.tried) < metadataPause {
		return p.known, p.unlessKnown()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout) // for all that wait, whoever asked first
	defer cancel()
	m, err := p.fetch(ctx)
	p.tried, p.failure = now, err
	if err == nil {
		if p.known != nil && p.known.KeySetURL == m.KeySetURL {
			m.tokens = p.known.tokens // with the keys that it has
		}
		p.known, p.fetched = m, now
	}
	return p.known, p.unlessKnown()
}

// unlessKnown is the last failure when nothing is known.
func (p *Provider) unlessKnown() error {
	if p.known != nil {
		return nil
	}
	return p.failure
}

// fetch reads the metadata once.
func (p *Provider) fetch(ctx context.Context) (*metadata, error) {
	at := strings.TrimSuffix(p.cfg.Issuer, "/") + "/.well-known/openid-configuration"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProvider, err)
	}
	req.Header.Set("Accept", "application/json")
	res, err := p.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxMetadata))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %s breaks off: %w", ErrUnavailable, at, err)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: %s returns %s", ErrUnavailable, at, res.Status)
	}
	m := &metadata{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %s is not JSON", ErrProvider, at)
	}
	if m.Issuer != p.cfg.Issuer {
		return nil, fmt.Errorf("%w: %s names the issuer %.200q, and OIDC_ISSUER is %q", ErrProvider, at, m.Issuer, p.cfg.Issuer)
	}
	if err := errors.Join(token.CheckURL(m.AuthorizationURL), token.CheckURL(m.TokenURL), token.CheckURL(m.KeySetURL)); err != nil {
		return nil, fmt.Errorf("%w: an endpoint of %s %w", ErrProvider, at, err)
	}
	if token.CheckURL(m.EndSessionURL) != nil {
		m.EndSessionURL = "" // nobody's log-in depends on it
	}
	m.tokens, err = token.NewIDVerifier(m.KeySetURL, m.Issuer, p.cfg.ClientID, p.now)
	return m, err
}

// oauth is the provider's side of the code flow.
func (p *Provider) oauth(m *metadata) *oauth2.Config {
	style := oauth2.AuthStyleInHeader // the default of the protocol
	if len(m.TokenAuth) > 0 && !slices.Contains(m.TokenAuth, "client_secret_basic") {
		style = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, RedirectURL: p.cfg.RedirectURL, Scopes: []string{"openid", "profile", "email"},
		Endpoint: oauth2.Endpoint{AuthURL: m.AuthorizationURL, TokenURL: m.TokenURL, AuthStyle: style},
	}
}
