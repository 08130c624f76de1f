package oidc

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/millweir/millweir/pkg/auth/token"
	"github.com/millweir/millweir/pkg/taskstate"
)

// PendingTTL is how long a person may take at the provider.
const PendingTTL = 10 * time.Minute

// Why nobody was logged in. Beside these Finish returns the errors of token.IDVerifier.Check.
var (
	// ErrNotBegun: the browser has no log-in under way, or that was begun more than PendingTTL ago.
	ErrNotBegun = errors.New("no log-in was begun in this browser")
	// ErrState: the answer is to another log-in than the browser's, or of another issuer.
	ErrState = errors.New("the answer is to another log-in")
	// ErrDenied: the person, or the provider, did not allow it.
	ErrDenied = errors.New("the provider denied the log-in")
	// ErrProvider: the provider refused the request, or said what cannot be used. An operator has to look.
	ErrProvider = errors.New("the provider and our settings do not fit")
	// ErrCode: the provider does not take the code: it was used, is too old, or is not ours.
	ErrCode = errors.New("the provider does not take the code")
	// ErrUnavailable: the provider does not answer.
	ErrUnavailable = errors.New("the provider does not answer")
)

// Provider logs people in. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	now    func() time.Time
	client *http.Client
	seal   cipher.AEAD

	mu      sync.Mutex // also held over a fetch
	known   *metadata  // nil: nothing yet
	fetched time.Time  // of known
	tried   time.Time  // of the last fetch, also a failed one
	failure error      // of the last fetch
}

// New makes a Provider and asks nobody yet; now nil is time.Now. Errors: those of Validate.
func New(cfg Config, now func() time.Time) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	key, err := hkdf.Key(sha256.New, []byte(cfg.ClientSecret), nil, "millweir: a log-in under way", 32)
	if err != nil {
		return nil, fmt.Errorf("make the key of log-ins: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make the key of log-ins: %w", err)
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("make the key of log-ins: %w", err)
	}
	return &Provider{cfg: cfg, now: now, client: client(), seal: seal}, nil
}

// Name is what people know the provider by: its host.
func (p *Provider) Name() string {
	u, err := url.Parse(p.cfg.Issuer)
	if err != nil {
		return ""
	}
	return u.Host
}

// EndSession returns where a browser goes to log its person out at the provider too (RP-Initiated Logout 1.0), from where it comes back
// to the console's log-in. Empty: the provider has no such address, or cannot be asked for it now.
func (p *Provider) EndSession(ctx context.Context) string {
	m, err := p.metadata(ctx)
	if err != nil || m.EndSessionURL == "" {
		return ""
	}
	u, err := url.Parse(m.EndSessionURL)
	if err != nil {
		return ""
	}
	q := u.Query()
	q.Set("client_id", p.cfg.ClientID)
	q.Set("post_logout_redirect_uri", strings.TrimSuffix(p.cfg.RedirectURL, callbackStep))
	u.RawQuery, u.Fragment = q.Encode(), ""
	return u.String()
}

// pending is a log-in under way.
type pending struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"` // of PKCE
	Next     string    `json:"x"` // where the person wanted to go
	Ends     time.Time `json:"e"`
}

// Begin returns the provider's address for a browser, and the text that the browser has to keep for Finish. next comes back from
// Finish as it is. Errors: ErrUnavailable, ErrProvider.
func (p *Provider) Begin(ctx context.Context, next string) (address, keep string, err error) {
	m, err := p.metadata(ctx)
	if err != nil {
		return "", "", err
	}
	w := pending{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next, Ends: p.now().Add(PendingTTL)}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // an & would be six bytes of a cookie
	if err := enc.Encode(w); err != nil {
		return "", "", fmt.Errorf("keep a log-in: %w", err)
	}
	keep = base64.RawURLEncoding.EncodeToString(p.seal.Seal(nil, nil, text.Bytes(), nil))
	return p.oauth(m).AuthCodeURL(w.State, oauth2.S256ChallengeOption(w.Verifier), oauth2.SetAuthURLParam("nonce", w.Nonce)), keep, nil
}

// open reads what Begin had the browser keep. ErrNotBegun.
func (p *Provider) open(keep string) (w pending, err error) {
	sealed, err := base64.RawURLEncoding.DecodeString(keep)
	if err != nil || keep == "" {
		return w, ErrNotBegun
	}
	text, err := p.seal.Open(nil, nil, sealed, nil)
	if err != nil || json.Unmarshal(text, &w) != nil || !p.now().Before(w.Ends) {
		return w, ErrNotBegun
	}
	return w, nil
}

// Done is a log-in that went well.
type Done struct {
	token.Identity
	Next string // as Begin was given it
	ID   string // of the log-in: the same whenever it is tried again
}

// Finish judges the parameters that the provider sent the browser back with. Errors: those of this package and of
// token.IDVerifier.Check. A log-in whose state fits can be tried again until its end: who makes a session of it has to
// refuse the second one, by Done.ID.
func (p *Provider) Finish(ctx context.Context, keep string, q url.Values) (Done, error) {
	w, err := p.open(keep)
	if err != nil {
		return Done{}, err
	}
	if subtle.ConstantTimeCompare([]byte(w.State), []byte(q.Get("state"))) != 1 {
		return Done{Next: w.Next}, ErrState
	}
	done := Done{Next: w.Next, ID: w.State}
	m, err := p.metadata(ctx)
	if err != nil {
		return done, err
	}
	if iss := q.Get("iss"); iss != m.Issuer && (iss != "" || m.NamesItself) {
		return done, fmt.Errorf("%w: it names another issuer", ErrState)
	}
	switch said := q.Get("error"); said {
	case "":
	case "access_denied", "login_required", "interaction_required", "consent_required", "account_selection_required":
		return done, ErrDenied
	case "temporarily_unavailable", "server_error":
		return done, fmt.Errorf("%w: it says %s", ErrUnavailable, said)
	default:
		return done, fmt.Errorf("%w: it says %.60q", ErrProvider, said)
	}
	raw, err := p.exchange(ctx, m, q.Get("code"), w.Verifier)
	if err != nil {
		return done, err
	}
	done.Identity, err = m.tokens.Check(ctx, raw, w.Nonce)
	switch {
	case errors.Is(err, taskstate.ErrUnavailable):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err == nil, errors.Is(err, token.ErrClock), errors.Is(err, token.ErrAudience), errors.Is(err, token.ErrNonce), errors.Is(err, token.ErrSubject):
	default: // it is unsigned, of an unknown key, or no token
		err = fmt.Errorf("%w: %w", ErrProvider, err)
	}
	return done, err
}

// exchange gives the provider the code for an ID token.
func (p *Provider) exchange(ctx context.Context, m *metadata, code, verifier string) (string, error) {
	if code == "" {
		return "", fmt.Errorf("%w: there is none", ErrCode)
	}
	got, err := p.oauth(m).Exchange(context.WithValue(ctx, oauth2.HTTPClient, p.client), code, oauth2.VerifierOption(verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == "invalid_grant":
		return "", ErrCode
	case errors.As(err, &refused) && refused.Response.StatusCode >= http.StatusInternalServerError:
		return "", fmt.Errorf("%w: the token endpoint returns %d", ErrUnavailable, refused.Response.StatusCode)
	case errors.As(err, &refused):
		return "", fmt.Errorf("%w: the token endpoint returns %d, %.60q", ErrProvider, refused.Response.StatusCode, refused.ErrorCode)
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	raw, ok := got.Extra("id_token").(string)
	if !ok {
		return "", fmt.Errorf("%w: the token endpoint returns no ID token", ErrProvider)
	}
	return raw, nil
}
