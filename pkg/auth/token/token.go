package token

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json" // exact names, none twice
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/taskstate"
)

// operatorScope is the word of the scope claim that gives the operator role.
const operatorScope = "operator"

// Verifier checks tokens. It is safe for concurrent use.
type Verifier struct {
	cfg  Config
	algs []jose.SignatureAlgorithm // what the configured keys can verify at all
	set  *keySet                   // nil: a shared secret
	now  func() time.Time
}

// New makes a Verifier; now nil is time.Now. Errors: those of Validate; no key is configured.
func New(cfg Config, now func() time.Time) (*Verifier, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if !cfg.Enabled() {
		return nil, errors.New("no JWT_SECRET and no JWKS_URL")
	}
	if now == nil {
		now = time.Now
	}
	v := &Verifier{cfg: cfg, now: now}
	if cfg.KeySetURL == "" {
		v.algs = secretAlgorithms(cfg.Secret)
		return v, nil
	}
	v.set = newKeySet(cfg.KeySetURL, now)
	v.algs = []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
	return v, nil
}

// Looks reports whether text has a token's form: three parts, not too long. Nothing is decoded.
func Looks(text string) bool {
	return len(text) <= maxToken && strings.Count(text, ".") == 2
}

// Authenticate returns who holds the token. The user is sub; the word operator in scope (a text or a list; or scp) gives the
// operator role, the words that are scopes of keys limit what it is good for, and with none of them it is good for read and write.
// Errors: auth.ErrInvalidKey; taskstate.ErrUnavailable (wrapped) when the issuer's keys cannot be fetched.
func (v *Verifier) Authenticate(ctx context.Context, text string) (auth.Principal, error) {
	c, err := v.read(ctx, text)
	if err != nil {
		return auth.Principal{}, err
	}
	if err := v.check(c); err != nil {
		return auth.Principal{}, err
	}
	return c.principal(), nil
}

// read returns the claims of a token whose signature is good, and puts them into more too; nothing else of them is judged.
func (v *Verifier) read(ctx context.Context, text string, more ...any) (claims, error) {
	if !Looks(text) {
		return claims{}, refuse("not of a token's form, or longer than %d bytes", maxToken)
	}
	parsed, err := jwt.ParseSigned(text, v.algs)
	if err != nil {
		return claims{}, refuse("cannot be read, or its algorithm is not allowed")
	}
	return v.verify(ctx, parsed, more)
}

// refuse is the one answer to a bad token; the reason is for the log.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: token: %s", auth.ErrInvalidKey, fmt.Sprintf(format, args...))
}

// verify checks the signature with the key that kid names, by an algorithm of that key, and returns the claims.
func (v *Verifier) verify(ctx context.Context, parsed *jwt.JSONWebToken, more []any) (claims, error) {
	if len(parsed.Headers) != 1 {
		return claims{}, refuse("it has not one signature")
	}
	head := parsed.Headers[0]
	key := publicKey{key: v.cfg.Secret, algorithms: v.algs}
	if v.set != nil {
		var found bool
		var err error
		if key, found, err = v.set.find(ctx, head.KeyID); err != nil {
			return claims{}, fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err)
		}
		if !found {
			return claims{}, refuse("its kid is not in the key set")
		}
	}
	if !slices.Contains(key.algorithms, jose.SignatureAlgorithm(head.Algorithm)) {
		return claims{}, refuse("its algorithm is not that of its key")
	}
	var c claims
	if err := parsed.Claims(key.key, append([]any{&c.Claims, &c}, more...)...); err != nil {
		return claims{}, refuse("its signature is wrong, or its claims cannot be read")
	}
	return c, nil
}

// claims are what is read of a payload: the registered ones, and what the user may do.
type claims struct {
	jwt.Claims `json:"-"`
	Scope      words `json:"scope"`
	Scp        words `json:"scp"`
}

// words is a text or a list of texts.
type words []string

// UnmarshalJSON takes either form.
func (w *words) UnmarshalJSON(b []byte) error {
	var one string
	if err := json.Unmarshal(b, &one); err == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(w))
}

// check judges the claims.
func (v *Verifier) check(c claims) error {
	if c.NotBefore == nil { // it is optional (RFC 7519 §4.1.5), and Keycloak leaves it out
		c.NotBefore = c.IssuedAt
	}
	c.IssuedAt = nil // beside nbf it is not checked
	want := jwt.Expected{Issuer: v.cfg.Issuer, AnyAudience: jwt.Audience{v.cfg.Audience}, Time: v.now()}
	// A token is bad from exp on (RFC 7519 §4.1.4); the library is content with exp itself.
	wrong := c.ValidateWithLeeway(want, leeway-time.Nanosecond)
	bad := checkSubject(c.Subject)
	switch {
	case c.Expiry == nil || c.NotBefore == nil:
		return refuse("exp is missing, or both nbf and iat are")
	case wrong != nil:
		return refuse("%s", wrong)
	case bad != nil:
		return refuse("sub: %s", bad)
	}
	return nil
}

// principal is who the claims speak of.
func (c claims) principal() auth.Principal {
	p := auth.Principal{UserID: c.Subject, Role: taskstate.RoleUser}
	var named []string
	for _, text := range append(c.Scope, c.Scp...) {
		for _, word := range strings.Fields(text) {
			if word == operatorScope {
				p.Role = taskstate.RoleOperator
			} else if _, err := auth.ParseScopes(word); err == nil {
				named = append(named, word)
			}
		}
	}
	p.Scopes, _ = auth.ParseScopes(named...) // status beside another one is good for nothing
	return p
}

// Chain takes API keys and tokens. Make one with both.
type Chain struct {
	Keys   *auth.Keys
	Tokens *Verifier
}

// Authenticate asks who can judge the secret by its form.
func (c Chain) Authenticate(ctx context.Context, secret string) (auth.Principal, error) {
	if !strings.HasPrefix(secret, auth.KeyPrefix) {
		return c.Tokens.Authenticate(ctx, secret)
	}
	return c.Keys.Authenticate(ctx, secret)
}
