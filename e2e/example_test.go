package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/ampcors/ampcors/internal/servertest"
)

// TestThePageOfTheExampleDecidesWhatIsTyped types Origins into the page of examples/publisher, and reads the verdict.
func TestThePageOfTheExampleDecidesWhatIsTyped(t *testing.T) {
	program, addr := filepath.Join(t.TempDir(), "publisher"), servertest.FreeAddress(t)
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "../examples/publisher"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, port, _ := strings.Cut(addr, ":")
	start(t, addr, exec.Command(program, "-addr", addr))
	page, cancel := context.WithTimeout(tab(t, browser(t, newSite(t))), 5*time.Minute)
	defer cancel()
	for origin, want := range map[string]string{
		"https://www-example-com.cdn.ampproject.org": "Allowed: cache_origin",
		"https://evil-example.cdn.ampproject.org":    "Denied: publisher_not_allowed",
	} {
		if err := chromedp.Do(page, chromedp.Navigate("http://localhost:"+port+"/"),
			chromedp.SendKeys(chromedp.ID("origin"), origin)); err != nil {
			t.Fatal(err)
		}
		if err := chromedp.Do(page, chromedp.Click(chromedp.CSS("form button")), chromedp.WaitVisible(chromedp.CSS(".verdict"))); err != nil {
			t.Fatal(err)
		}
		if verdict, err := chromedp.Run(page, chromedp.Text(chromedp.CSS(".verdict"))); err != nil || !strings.Contains(verdict, want) {
			t.Errorf("%s: %q, %v; want %q", origin, verdict, err, want)
		}
	}
}
