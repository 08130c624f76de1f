// Package token checks JSON Web Tokens that somebody else issued: a secret shared with the issuer, or the issuer's key set.
//
// The key decides the algorithm, never the token: each sort of key has its own short list (RFC 8725 §3.1). Of a token's
// header only alg and kid are read, and kid is nothing but a key of a map; jku, jwk, x5u and x5c have no effect.
// Issuer, audience, sub, exp and nbf are required; iat stands in for nbf. Verifier.Authenticate is the entry point.
package token

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// maxToken bounds a token before anything of it is read, bytes.
	maxToken = 8 << 10
	// leeway is how far the issuer's clock may be off.
	leeway = 30 * time.Second
	// minSecret is the shortest shared secret: that of HS256 (RFC 7518 §3.2), bytes.
	minSecret = 32
)

// Config says whose tokens are good. One of Secret and KeySetURL is set.
type Config struct {
	Secret    []byte // of HS256; from 48 and 64 bytes on also of HS384 and HS512
	KeySetURL string // the issuer's JWKS: https, or http on a loopback address
	Issuer    string // iss, compared as it is
	Audience  string // one of aud
}

// Enabled reports whether tokens are taken at all.
func (c Config) Enabled() bool { return len(c.Secret) > 0 || c.KeySetURL != "" }

// Validate names every problem, each beginning with the setting's name.
func (c Config) Validate() error {
	if !c.Enabled() {
		return nil
	}
	var errs []error
	if len(c.Secret) > 0 && c.KeySetURL != "" {
		errs = append(errs, errors.New("JWT_SECRET: is set and so is JWKS_URL: tokens come from one issuer"))
	}
	if len(c.Secret) > 0 && len(c.Secret) < minSecret {
		errs = append(errs, fmt.Errorf("JWT_SECRET: has %d bytes, HS256 needs at least %d", len(c.Secret), minSecret))
	}
	if err := CheckURL(c.KeySetURL); c.KeySetURL != "" && err != nil {
		errs = append(errs, fmt.Errorf("JWKS_URL: %w", err))
	}
	if c.Issuer == "" {
		errs = append(errs, errors.New("JWT_ISSUER: is not set: a token of any issuer would be good"))
	}
	if c.Audience == "" {
		errs = append(errs, errors.New("JWT_AUDIENCE: is not set: a token made for another service would be good"))
	}
	return errors.Join(errs...)
}

// CheckURL refuses the address of an issuer, or of its key set, whose content others on the way could replace.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return errors.New("is not a URL without a login")
	}
	host := strings.ToLower(u.Hostname())
	addr, addrErr := netip.ParseAddr(host)
	local := host == "localhost" || addrErr == nil && addr.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return errors.New("has to be https; http is for loopback addresses")
	}
	return nil
}

// secretAlgorithms are those that a shared secret is long enough for.
func secretAlgorithms(secret []byte) []jose.SignatureAlgorithm {
	algs := []jose.SignatureAlgorithm{jose.HS256}
	if len(secret) >= 48 {
		algs = append(algs, jose.HS384)
	}
	if len(secret) >= 64 {
		algs = append(algs, jose.HS512)
	}
	return algs
}
