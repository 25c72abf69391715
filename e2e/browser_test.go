// Package e2e tests ampcors with a real browser: headless Chromium loads pages from servers
// on loopback under the real host names, and their scripts do what those of AMP pages do.
package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/ampcors/ampcors/internal/servertest"
)

// browser starts Chromium and returns a context for it. All names except localhost lead
// to the site's servers.
func browser(t *testing.T, s *site) context.Context {
	t.Helper()
	path := servertest.Program(t, "install Chromium (Debian: apt-get install chromium)", "chromium", "chromium-browser", "google-chrome")
	dir := t.TempDir()
	prefs := filepath.Join(dir, "Default", "Preferences")
	if err := os.MkdirAll(filepath.Dir(prefs), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(prefs, []byte(`{"profile": {"cookie_controls_mode": 0}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.WSURLReadTimeout(time.Minute)}
	for _, name := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
		"disable-component-update", "disable-sync", "ignore-certificate-errors", "disable-dev-shm-usage",
	} {
		flags = append(flags, chromedp.Flag(name, true))
	}
	flags = append(flags, chromedp.Flag("disable-features", "HttpsUpgrades")) // an http page must stay on http
	flags = append(flags, chromedp.Flag("host-resolver-rules", "MAP *:80 "+s.http+", MAP *:443 "+s.https+", EXCLUDE localhost"))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), flags...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // and wait until it has ended
		cancel()
	})
	if _, err := chromedp.Run(ctx, chromedp.Location()); err != nil { // which starts it
		t.Fatal(err)
	}
	return ctx
}

// tab returns a context for a new tab. Tabs share their cookies: a tab with a profile
// of its own would be like a private window, where Chromium sends no third-party cookies.
func tab(t testing.TB, browser context.Context) context.Context {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	if _, err := chromedp.Run(ctx, chromedp.Location()); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// visit loads a page, runs the script in it, and returns the string that its promise
// yields.
func visit(t testing.TB, ctx context.Context, url, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(url)); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	result, err := chromedp.Run(ctx, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return result
}
