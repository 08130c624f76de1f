package token

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/taskstate"
)

// What is wrong with an ID token whose signature is good. Each is an auth.ErrInvalidKey.
var (
	// ErrClock: it has ended, or is not good yet.
	ErrClock = fmt.Errorf("%w: the ID token's time", auth.ErrInvalidKey)
	// ErrAudience: it is of another issuer, or for another client.
	ErrAudience = fmt.Errorf("%w: the ID token's issuer or audience", auth.ErrInvalidKey)
	// ErrNonce: it is of another log-in.
	ErrNonce = fmt.Errorf("%w: the ID token's nonce", auth.ErrInvalidKey)
	// ErrSubject: it names nobody who can be a user.
	ErrSubject = fmt.Errorf("%w: the ID token's sub", auth.ErrInvalidKey)
)

// Identity is who an ID token speaks of.
type Identity struct {
	auth.Principal        // without a key
	Shown          string // how people know the user: preferred_username, email or name; empty: the token has none
}

// IDVerifier checks the ID tokens of a provider (OpenID Connect Core, section 3.1.3.7). It is safe for concurrent use.
type IDVerifier struct{ v Verifier }

// NewIDVerifier makes one for a provider's key set and a client's id; now nil is time.Now. Errors: those of Config.Validate.
func NewIDVerifier(keySetURL, issuer, clientID string, now func() time.Time) (*IDVerifier, error) {
	v, err := New(Config{KeySetURL: keySetURL, Issuer: issuer, Audience: clientID}, now)
	if err != nil {
		return nil, err
	}
	return &IDVerifier{v: *v}, nil
}

// Check returns who logged in. User, role and scopes are read as those of every token (Verifier.Authenticate); the words may
// stand in the claim roles too. Errors: those above; auth.ErrInvalidKey; taskstate.ErrUnavailable (wrapped) when the provider's
// keys cannot be fetched.
func (i *IDVerifier) Check(ctx context.Context, text, nonce string) (Identity, error) {
	var id idClaims
	c, err := i.v.read(ctx, text, &id)
	if err != nil {
		return Identity{}, err
	}
	want := jwt.Expected{Issuer: i.v.cfg.Issuer, AnyAudience: jwt.Audience{i.v.cfg.Audience}, Time: i.v.now()}
	wrong := c.ValidateWithLeeway(want, leeway-time.Nanosecond)
	switch {
	case errors.Is(wrong, jwt.ErrInvalidIssuer), errors.Is(wrong, jwt.ErrInvalidAudience):
		return Identity{}, fmt.Errorf("%w: %w", ErrAudience, wrong)
	case id.Azp != "" && id.Azp != i.v.cfg.Audience, len(c.Audience) > 1 && id.Azp == "":
		return Identity{}, fmt.Errorf("%w: azp is not the client", ErrAudience)
	case wrong != nil, c.Expiry == nil:
		return Identity{}, fmt.Errorf("%w: %w", ErrClock, errors.Join(wrong, missing(c.Expiry == nil, "exp")))
	case nonce == "" || id.Nonce != nonce:
		return Identity{}, ErrNonce
	}
	if err := checkSubject(c.Subject); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrSubject, err)
	}
	c.Scope = append(c.Scope, id.Roles...)
	return Identity{Principal: c.principal(), Shown: id.shown()}, nil
}

// missing is an error for a claim that is not there.
func missing(is bool, claim string) error {
	if is {
		return fmt.Errorf("%s is missing", claim)
	}
	return nil
}

// checkSubject returns what is wrong with a user's id.
func checkSubject(sub string) error {
	if err := auth.CheckUserID(sub); err != nil {
		return err
	}
	if sub == auth.LocalUser || sub == taskstate.System().UserID {
		return errors.New("it is a name of ours")
	}
	return nil
}

// idClaims are what is read of ID tokens alone.
type idClaims struct {
	Roles             words  `json:"roles"`
	Nonce             string `json:"nonce"`
	Azp               string `json:"azp"`
	PreferredUsername string `json:"preferred_username"`
	Email             string `json:"email"`
	Name              string `json:"name"`
}

// shown is the first name of the user that can be shown.
func (c idClaims) shown() string {
	for _, name := range []string{c.PreferredUsername, c.Email, c.Name} {
		name = strings.TrimSpace(strings.ToValidUTF8(name, ""))
		if name != "" && len(name) <= 100 && !strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
			return name
		}
	}
	return ""
}
