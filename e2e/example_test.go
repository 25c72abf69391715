package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/ampcors/ampcors/internal/servertest"
)

// TestTheExamplePage types, clicks and reads as a person does, at the size of a desktop and
// of a phone. If SCREENSHOTS is set to a directory, it saves screenshots there.
func TestTheExamplePage(t *testing.T) {
	chromium := browser(t, newSite(t))
	binary, addr := filepath.Join(t.TempDir(), "publisher"), strings.Replace(servertest.FreeAddress(t), "127.0.0.1", "localhost", 1)
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/ampcors/ampcors/examples/publisher").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	start(t, addr, exec.Command(binary, "-addr", addr))

	for _, size := range []struct {
		name          string
		width, height int64
		options       []chromedp.EmulateViewportOption
	}{
		{name: "desktop", width: 1280, height: 800, options: nil},
		{name: "phone", width: 390, height: 844, options: []chromedp.EmulateViewportOption{chromedp.EmulateMobile, chromedp.EmulateTouch}},
	} {
		t.Run(size.name, func(t *testing.T) {
			page := tab(t, chromium)
			do(t, page, chromedp.EmulateViewport(size.width, size.height, size.options...))
			do(t, page, chromedp.Navigate("http://"+addr+"/"))
			look(t, page, size.name+"-empty", size.width)
			focuses := "String(document.querySelector('#origin').autofocus)"
			if read(t, page, focuses) != "true" {
				t.Error("the field is not focused")
			}

			for _, try := range []struct{ name, typed, verdict, title, step string }{
				{name: "allowed", typed: "https://www-example-com.cdn.ampproject.org", verdict: "Allowed: cache_origin (www.example.com)", title: "Allowed: how an Origin is decided", step: "Listed in Publishers."},
				{name: "denied", typed: "https://evil-example.cdn.ampproject.org", verdict: "Denied: publisher_not_allowed (claims to be evil.example)", title: "Denied: how an Origin is decided", step: "Neither listed in Publishers nor matched by a pattern there."},
				{name: "markup", typed: "<script>document.title='x'</script>", verdict: "Denied: malformed_origin", title: "Denied: how an Origin is decided", step: "An origin is a scheme"},
				{name: "hash", typed: "https://v2c4ucasgcskftbjt4c7phpkbqedcdcqo23tkamleapoa5o6fygq.cdn.ampproject.org", verdict: "Denied: hash_not_known", title: "Denied: how an Origin is decided", step: "A pattern cannot match a hash prefix."},
			} {
				do(t, page, chromedp.Clear(chromedp.CSS("#origin")))
				do(t, page, chromedp.SendKeys(chromedp.CSS("#origin"), try.typed))
				do(t, page, loads(chromedp.Click(chromedp.CSS("button"))))
				expect(t, page, try.name, try.verdict, try.title, try.step)
				if value := read(t, page, "document.querySelector('#origin').value"); value != try.typed {
					t.Errorf("%s: the field has %q", try.name, value)
				}
				if read(t, page, focuses) != "false" {
					t.Errorf("%s: on a phone, the keyboard covers the verdict", try.name)
				}
				look(t, page, size.name+"-"+try.name, size.width)
			}

			// Click one of the samples by its name, then type an origin and press Enter.
			do(t, page, loads(chromedp.Click(`//a[text()="Internationalized"]`)))
			expect(t, page, "a sample", "Allowed: cache_origin (xn--bcher-kva.example)", "Allowed: how an Origin is decided", "Punycode is decoded")
			do(t, page, chromedp.Clear(chromedp.CSS("#origin")))
			do(t, page, loads(chromedp.SendKeys(chromedp.CSS("#origin"), "null\r")))
			expect(t, page, "Enter", "Denied: null_origin", "Denied: how an Origin is decided", "Sandboxed frames")
		})
	}
}

// do does what a person does.
func do(t *testing.T, page context.Context, action chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(page, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, action); err != nil {
		t.Fatal(err)
	}
}

// loads waits until the page that an action leads to has loaded.
func loads(action chromedp.Action[chromedp.Void]) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Run(ctx, chromedp.WaitEvent(cdppage.LoadEventFired, nil, action))
		return err
	})
}

func read(t *testing.T, page context.Context, expression string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(page, time.Minute)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// expect checks the verdict, the title and one of the steps.
func expect(t *testing.T, page context.Context, name, verdict, title, step string) {
	t.Helper()
	if got := strings.TrimSpace(read(t, page, "document.querySelector('[role=status]').innerText")); got != verdict {
		t.Errorf("%s: the verdict is %q; want %q", name, got, verdict)
	}
	if got := read(t, page, "document.title"); got != title {
		t.Errorf("%s: the title is %q; want %q", name, got, title)
	}
	if got := read(t, page, "document.querySelector('.steps').innerText"); !strings.Contains(got, step) {
		t.Errorf("%s: the steps are\n%s\nwant %q", name, got, step)
	}
}

// look checks that the page is not wider than the screen, and that the field and the button
// are large enough for a finger. It then takes a screenshot.
func look(t *testing.T, page context.Context, name string, width int64) {
	t.Helper()
	if got := read(t, page, fmt.Sprintf("String(document.documentElement.scrollWidth <= %d)", width)); got != "true" {
		t.Errorf("%s: the page is wider than the screen", name)
	}
	for _, element := range []string{"#origin", "button"} {
		if got := read(t, page, `String((r => r.width >= 44 && r.height >= 44)(document.querySelector('`+element+`').getBoundingClientRect()))`); got != "true" {
			t.Errorf("%s: %s is smaller than a fingertip: %s", name, element, read(t, page, `JSON.stringify(document.querySelector("`+element+`").getBoundingClientRect())`))
		}
	}
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(page, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600); err != nil {
		t.Fatal(err)
	}
}
