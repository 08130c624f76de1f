package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth/oidc"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

// A browser brings a log-in at a provider on another site to its end: the cookie of the log-in comes back with the provider's
// redirect, and that of the session, which is SameSite=Strict, goes along with the next page. Its log-out comes to its end there too.
func TestProviderLoginInChromium(t *testing.T) {
	t.Parallel()
	p := newIdentities(t) // on 127.0.0.1
	var g http.Handler
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.ServeHTTP(w, r) }))
	t.Cleanup(front.Close)
	url := strings.Replace(front.URL, "127.0.0.1", "localhost", 1)
	p.register(url + oidc.CallbackPath)
	s := newSite(t, func(_ *Config, d *Deps) {
		d.Provider = p.provider(func(c *oidc.Config) { c.RedirectURL = url + oidc.CallbackPath })
	})
	g = s.g
	path, err := installed.Chromium()
	require.NoError(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("headless", "new"),
		chromedp.WSURLReadTimeout(time.Minute))
	pool, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, cancel := chromedp.NewContext(pool)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the process
		cancel()
		stop()
	})
	require.NoError(t, chromedp.Run(ctx)) // the browser lives as long as the context of its first step
	within, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	var at, who string
	require.NoError(t, chromedp.Run(within,
		chromedp.Navigate(url+"/console/tasks?status=DEAD"), chromedp.Click(`a[href*="login/provider"]`),
		chromedp.Click("#ann"), chromedp.Text(".who bdi", &who), chromedp.Location(&at)))
	require.Equal(t, strings.TrimPrefix(p.URL, "http://")+" id1@example.org", who)
	require.Equal(t, url+"/console/tasks?status=DEAD", at)

	// Log-out goes to the provider and back, under the policy of our pages.
	require.NoError(t, chromedp.Run(within,
		chromedp.Click(`form[action$="/logout"] button`), chromedp.WaitVisible(`input[name="key"]`), chromedp.Location(&at)))
	require.Equal(t, url+"/console/login", at)
	require.Equal(t, int32(1), p.ended.Load())
}
