package e2e

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ampcors/ampcors/internal/servertest"
)

// gatewayCaddy builds Caddy with the handler of ampcors. It returns a function that makes a
// command of it.
func gatewayCaddy(t testing.TB) (command func(args ...string) *exec.Cmd) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "caddy")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/ampcors/ampcors/caddy/cmd/caddy").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME=", "XDG_CONFIG_HOME=")
		return cmd
	}
}

// startJavaScript starts a program for Node.js, which listens at addr.
func startJavaScript(t *testing.T, addr string, args ...string) {
	t.Helper()
	node := servertest.Program(t, "install Node.js (Debian: apt-get install nodejs)", "node")
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(node, args...)
	cmd.Env = append(os.Environ(), "PORT="+port)
	start(t, addr, cmd)
}

func get(t *testing.T, url string) string {
	t.Helper()
	_, body := send(t, "GET", url, nil)
	return body
}

// TestTheCaddyExample runs examples/caddy at free addresses. Caddy's other commands accept it, and
// its metrics have the decisions.
func TestTheCaddyExample(t *testing.T) {
	text, err := os.ReadFile("../examples/caddy/Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	addr, backend, admin := servertest.FreeAddress(t), servertest.FreeAddress(t), servertest.FreeAddress(t)
	site := "{\n\tadmin " + admin + "\n\tpersist_config off\n}\n" + string(text)
	for old, now := range map[string]string{"localhost:8080": addr, "localhost:3000": backend,
		"examples/caddy/publishers.txt": "../examples/caddy/publishers.txt"} {
		if strings.Count(site, old) != 1 {
			t.Fatalf("%s is not once in the Caddyfile", old)
		}
		site = strings.ReplaceAll(site, old, now)
	}
	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, []byte(site), 0o600); err != nil {
		t.Fatal(err)
	}
	startJavaScript(t, backend, "../examples/caddy/backend.js")
	caddy := gatewayCaddy(t)
	for _, args := range [][]string{{"adapt", "--config", file}, {"validate", "--config", file}, {"fmt", "../examples/caddy/Caddyfile"}} {
		if out, err := caddy(args...).CombinedOutput(); err != nil {
			t.Errorf("caddy %q: %v\n%s", args, err, out)
		}
	}
	adapted, err := caddy("adapt", "--config", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	check := exec.Command(buildAmpcors(t), "check", "-")
	check.Stdin = bytes.NewReader(adapted)
	if out, err := check.Output(); err != nil || !strings.Contains(string(out), "publishers: 2, and 1 pattern\n") {
		t.Errorf("ampcors check -: %v, %s", err, out)
	}
	start(t, addr, caddy("run", "--config", file))
	for _, test := range []struct {
		origin string
		status int
		body   string
	}{
		{cached, http.StatusOK, `{"for":"www.example.com"}`},
		{"https://xn--bcher-example-wob.cdn.ampproject.org", http.StatusOK, `{"for":"xn--bcher-kva.example"}`},
		{"", http.StatusOK, `{"for":null}`},
		{evil, http.StatusForbidden, "Forbidden: publisher_not_allowed"},
	} {
		r, err := http.NewRequest("GET", "http://"+addr+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		wantACAO := test.origin
		if test.status != http.StatusOK {
			wantACAO = ""
		}
		if acao := resp.Header.Get("Access-Control-Allow-Origin"); err != nil || resp.StatusCode != test.status ||
			strings.TrimSpace(string(body)) != test.body || acao != wantACAO {
			t.Errorf("%s: %s %q %q, %v", test.origin, resp.Status, acao, body, err)
		}
	}
	metrics := get(t, "http://"+admin+"/metrics")
	for _, want := range []string{`{allowed="true",handler="",reason="cache_origin"} 2`, `{allowed="true",handler="",reason="no_origin"} 1`,
		`{allowed="false",handler="",reason="publisher_not_allowed"} 1`} {
		if !strings.Contains(metrics, "\nampcors_decisions_total"+want+"\n") {
			t.Errorf("the metrics do not have %s", want)
		}
	}
}
