// Package oidc logs people in at an OpenID provider: the authorization code flow with PKCE, state and nonce.
//
// Provider.Begin says where a browser goes, Provider.Finish judges what it comes back with. What has to be kept in between
// stands sealed in the browser's cookie, by a key made of the client's secret: every process with the same settings can open it,
// and no table has it. The ID token is judged by pkg/auth/token, as every token is. Nothing of the provider's texts is passed on.
package oidc

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/millweir/millweir/pkg/auth/token"
)

// CallbackPath ends every redirect URL: where the console takes the provider's answer.
const CallbackPath = "/console/login" + callbackStep

// callbackStep ends the callback; before it stands the log-in, to which the provider sends people back after a log-out.
const callbackStep = "/callback"

// minSecret is the shortest client secret, bytes: a key is made of it.
const minSecret = 16

// Config says who the provider is, and who we are to it.
type Config struct {
	Issuer       string // https, or http on a loopback address; its metadata is at /.well-known/openid-configuration below it
	ClientID     string
	ClientSecret string
	RedirectURL  string // of the browser: the public address of the console with CallbackPath
}

// Enabled reports whether anybody logs in at a provider.
func (c Config) Enabled() bool {
	return c.Issuer != "" || c.ClientID != "" || c.ClientSecret != "" || c.RedirectURL != ""
}

// Validate names every problem, each beginning with the setting's name.
func (c Config) Validate() error {
	if !c.Enabled() {
		return nil
	}
	var errs []error
	if err := token.CheckURL(c.Issuer); err != nil {
		errs = append(errs, fmt.Errorf("OIDC_ISSUER: %w", err))
	}
	if c.ClientID == "" {
		errs = append(errs, errors.New("OIDC_CLIENT_ID: is not set: the provider gives one to each client"))
	}
	if len(c.ClientSecret) < minSecret {
		errs = append(errs, fmt.Errorf("OIDC_CLIENT_SECRET: has %d bytes, at least %d are needed", len(c.ClientSecret), minSecret))
	}
	u, err := url.Parse(c.RedirectURL)
	if wrong := token.CheckURL(c.RedirectURL); wrong != nil {
		errs = append(errs, fmt.Errorf("OIDC_REDIRECT_URL: %w", wrong))
	} else if err != nil || !strings.HasSuffix(u.Path, CallbackPath) || u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, fmt.Errorf("OIDC_REDIRECT_URL: has to be the public address of the console with %s at its end, and no parameters", CallbackPath))
	}
	return errors.Join(errs...)
}
