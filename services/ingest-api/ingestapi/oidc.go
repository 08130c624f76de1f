package ingestapi

import (
	"time"

	"github.com/millweir/millweir/pkg/auth/oidc"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/ingest-api/gateway"
)

// OIDC says where people log in to the console beside API keys, with AUTH_MODE=keys; nowhere when none of these is set.
type OIDC struct {
	Issuer       string         `envconfig:"OIDC_ISSUER" desc:"identity provider that people log in to the console with: its issuer, https, or http on a loopback address"`
	ClientID     string         `envconfig:"OIDC_CLIENT_ID" desc:"the console's client id at OIDC_ISSUER"`
	ClientSecret process.Secret `envconfig:"OIDC_CLIENT_SECRET" desc:"the secret of OIDC_CLIENT_ID, 16 bytes at least; the same in every ingest-api"`
	RedirectURL  string         `envconfig:"OIDC_REDIRECT_URL" desc:"public address of the console with /console/login/callback at its end, as it is registered at OIDC_ISSUER"`
}

// Validate names every problem.
func (o OIDC) Validate() error { return o.config().Validate() }

// Provider makes what logs people in; nil when nothing is set.
func (o OIDC) Provider() (gateway.Provider, error) {
	cfg := o.config()
	if !cfg.Enabled() {
		return nil, nil //nolint:nilnil // no provider is a choice, not a failure
	}
	return oidc.New(cfg, time.Now)
}

// config is the provider's view of the settings.
func (o OIDC) config() oidc.Config {
	return oidc.Config{Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret.Reveal(), RedirectURL: o.RedirectURL}
}
