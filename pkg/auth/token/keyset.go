package token

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// minRefresh is the shortest pause between two fetches, also after a failure and for kids that nobody knows.
	minRefresh = time.Minute
	// maxAge is how long fetched keys are used before they are fetched again, so that a key that the issuer withdrew ends.
	maxAge = 10 * time.Minute
	// maxStale is how long keys are used when the issuer does not answer any more.
	maxStale = time.Hour
	// fetchTimeout bounds one fetch; callers wait for it.
	fetchTimeout = 5 * time.Second
	// maxSet bounds a key set, bytes; maxKeys its keys.
	maxSet  = 1 << 20
	maxKeys = 100
	// minRSA is the shortest RSA key, bits (RFC 7518 §3.3).
	minRSA = 2048
)

// errNoKeySet says that the issuer's keys are not known now.
var errNoKeySet = errors.New("the issuer's key set could not be fetched")

// publicKey is one key with what it may verify.
type publicKey struct {
	key        any
	algorithms []jose.SignatureAlgorithm
}

// keySet is the issuer's keys by kid. A fetch replaces them all.
//
// Libraries do less: coreos/go-oidc fetches for every unknown kid and keeps withdrawn keys until one comes;
// MicahParks/keyfunc uses old keys for ever when the issuer is away, and brings a second JWT library. Neither bounds
// the set, refuses a kid that stands twice, or ties a key to its algorithms.
type keySet struct {
	url    string
	client *http.Client
	now    func() time.Time

	fetching sync.Mutex // held over a fetch; who needs a key that is not there waits for it

	mu      sync.Mutex
	keys    map[string]publicKey
	fetched time.Time // of the keys
	tried   time.Time // of the last fetch, also a failed one
	failure error     // of the last fetch
}

func newKeySet(url string, now func() time.Time) *keySet {
	return &keySet{url: url, now: now, client: &http.Client{
		Timeout:       fetchTimeout,
		Transport:     &http.Transport{Proxy: nil, MaxIdleConns: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// find returns the key of a kid; found is false when the issuer has no such key. errNoKeySet when nobody can say.
func (s *keySet) find(ctx context.Context, kid string) (publicKey, bool, error) {
	k, found, due, err := s.look(kid)
	switch {
	case !due:
		return k, found, err
	case found && !s.fetching.TryLock():
		return k, found, err // somebody is fetching, and the old key is good until he is done
	case !found:
		s.fetching.Lock()
	}
	defer s.fetching.Unlock()
	if k, found, due, err = s.look(kid); !due {
		return k, found, err
	}
	s.refresh(ctx)
	k, found, _, err = s.look(kid)
	return k, found, err
}

// look returns what is known of a kid, and whether the set should be fetched for it now.
func (s *keySet) look(kid string) (k publicKey, found, due bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	k, found = s.keys[kid]
	due = (!found || now.Sub(s.fetched) >= maxAge) && (s.tried.IsZero() || now.Sub(s.tried) >= minRefresh)
	if s.keys == nil || now.Sub(s.fetched) >= maxStale {
		return publicKey{}, false, due, fmt.Errorf("%w: %w", errNoKeySet, s.failure)
	}
	return k, found, due, nil
}

// refresh fetches the set; what was there before stays when that fails. It does not end with the request that needed it.
func (s *keySet) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	keys, err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried, s.failure = s.now(), err
	if err == nil {
		s.keys, s.fetched = keys, s.tried
	}
}

// fetch reads the set once.
func (s *keySet) fetch(ctx context.Context) (map[string]publicKey, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the issuer answered %s", res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxSet+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxSet {
		return nil, fmt.Errorf("the key set is larger than %d bytes", maxSet)
	}
	return parseSet(body)
}

// parseSet reads a key set. A key that it cannot use is left out: others of the set may be for other services.
func parseSet(body []byte) (map[string]publicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("the key set is not JSON")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("the key set has more than %d keys", maxKeys)
	}
	out := map[string]publicKey{}
	for _, raw := range set.Keys {
		var jwk jose.JSONWebKey
		if json.Unmarshal(raw, &jwk) != nil || jwk.KeyID == "" || jwk.Use != "" && jwk.Use != "sig" {
			continue
		}
		algs := algorithmsOf(jwk)
		if len(algs) == 0 {
			continue
		}
		if _, twice := out[jwk.KeyID]; twice {
			return nil, errors.New("the key set names a kid twice")
		}
		out[jwk.KeyID] = publicKey{key: jwk.Key, algorithms: algs}
	}
	if len(out) == 0 {
		return nil, errors.New("the key set has no key that can be used")
	}
	return out, nil
}

// algorithmsOf is what a public key may verify: by its sort, narrowed by its own alg. Symmetric and private keys verify nothing.
func algorithmsOf(jwk jose.JSONWebKey) []jose.SignatureAlgorithm {
	var algs []jose.SignatureAlgorithm
	switch key := jwk.Key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() >= minRSA {
			algs = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
		}
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			algs = []jose.SignatureAlgorithm{jose.ES256}
		case elliptic.P384():
			algs = []jose.SignatureAlgorithm{jose.ES384}
		case elliptic.P521():
			algs = []jose.SignatureAlgorithm{jose.ES512}
		}
	case ed25519.PublicKey:
		algs = []jose.SignatureAlgorithm{jose.EdDSA}
	}
	if jwk.Algorithm != "" {
		algs = slices.DeleteFunc(algs, func(a jose.SignatureAlgorithm) bool { return string(a) != jwk.Algorithm })
	}
	return algs
}
