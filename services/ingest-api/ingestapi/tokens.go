package ingestapi

import (
	"time"

	"github.com/millweir/millweir/pkg/auth/token"
	"github.com/millweir/millweir/pkg/process"
)

// Tokens says whose JSON Web Tokens are taken beside API keys, with AUTH_MODE=keys; without a secret and a key set none are.
type Tokens struct {
	Secret   process.Secret `envconfig:"JWT_SECRET" desc:"secret shared with the issuer of tokens: HS256 from 32 bytes on, HS384 from 48, HS512 from 64"`
	KeySet   string         `envconfig:"JWKS_URL" desc:"key set of the issuer of tokens (RS, PS, ES, EdDSA); https, or http on a loopback address"`
	Issuer   string         `envconfig:"JWT_ISSUER" desc:"iss of the tokens; needed with JWT_SECRET or JWKS_URL"`
	Audience string         `envconfig:"JWT_AUDIENCE" desc:"one of the tokens' aud; needed with JWT_SECRET or JWKS_URL"`
}

// Validate names every problem.
func (t Tokens) Validate() error { return t.config().Validate() }

// Verifier makes what checks the tokens; nil when none are taken.
func (t Tokens) Verifier() (*token.Verifier, error) {
	cfg := t.config()
	if !cfg.Enabled() {
		return nil, nil //nolint:nilnil // no tokens is a choice, not a failure
	}
	return token.New(cfg, time.Now)
}

// config is the verifier's view of the settings.
func (t Tokens) config() token.Config {
	return token.Config{Secret: []byte(t.Secret.Reveal()), KeySetURL: t.KeySet, Issuer: t.Issuer, Audience: t.Audience}
}
