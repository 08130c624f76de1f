package oidc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth/oidc"
)

// Settings that would send people, codes or secrets where others can take them are refused by name.
func TestValidate(t *testing.T) {
	t.Parallel()
	good := oidc.Config{
		Issuer: "https://id.example", ClientID: "console", ClientSecret: "0123456789abcdef", RedirectURL: "https://docs.example/mill/console/login/callback",
	}
	require.NoError(t, good.Validate())
	require.NoError(t, oidc.Config{}.Validate(), "nobody logs in elsewhere")
	require.False(t, oidc.Config{}.Enabled())
	for name, change := range map[string]func(c *oidc.Config){
		"OIDC_ISSUER":        func(c *oidc.Config) { c.Issuer = "http://id.example" },
		"OIDC_CLIENT_ID":     func(c *oidc.Config) { c.ClientID = "" },
		"OIDC_CLIENT_SECRET": func(c *oidc.Config) { c.ClientSecret = "short" },
		"OIDC_REDIRECT_URL":  func(c *oidc.Config) { c.RedirectURL = "" },
	} {
		c := good
		change(&c)
		err := c.Validate()
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "short")
		_, err = oidc.New(c, nil)
		require.Error(t, err)
	}
	for _, address := range []string{
		"http://docs.example/console/login/callback", "https://docs.example/console/login", "https://docs.example/console/login/callback?a=b",
		"https://u:p@docs.example/console/login/callback", "/console/login/callback", "https://docs.example/console/login/callback#x",
	} {
		c := good
		c.RedirectURL = address
		require.ErrorContains(t, c.Validate(), "OIDC_REDIRECT_URL", address)
	}
	local := good
	local.Issuer, local.RedirectURL = "http://127.0.0.1:9998", "http://localhost:8081/console/login/callback"
	require.NoError(t, local.Validate())
}
