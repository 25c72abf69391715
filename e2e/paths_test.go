package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/authz"
	"github.com/ampcors/ampcors/internal/servertest"
)

// pathOwners are the publishers of the paths /news/ and /shop/.
var pathOwners = map[string]string{"news": "www.example.com", "shop": "shop.example"}

// confusing are paths that servers read differently. VICTIM and OWN are the names of two publishers' paths.
var confusing = []string{
	"/VICTIM/x", "/VICTIM/articles/..%2f..%2fOWN/x", "/VICTIM/..%2fOWN/x", "/OWN/..%2fVICTIM/x", "/OWN/..%2FVICTIM%2Fx",
	"/VICTIM/%2e%2e/OWN/x", "/OWN/%2e%2e/VICTIM/x", "/OWN/.%2e/VICTIM/x", "/VICTIM/../OWN/x", "/OWN/../VICTIM/x",
	"/VICTIM/..%5cOWN/x", "/OWN/..%5cVICTIM/x", `/OWN/..\VICTIM/x`, `/\VICTIM/x`,
	"/VICTIM/..;/OWN/x", "/OWN/..;/VICTIM/x", "/OWN/..;a=b/VICTIM/x", "/VICTIM;/x", "/OWN;/../VICTIM/x",
	"//VICTIM/x", "/OWN//VICTIM/x", "//OWN/VICTIM/x", "/VICTIM//OWN/x", "//OWN/../VICTIM/x",
	"/VICTIM/./x", "/./VICTIM/x", "/OWN/./../VICTIM/x", "/%2e/VICTIM/x",
	"/OWN/..%252fVICTIM/x", "/VICTIM/..%252fOWN/x", "/OWN/%252e%252e/VICTIM/x", "/OWN/%252e%252e%252fVICTIM/x",
	"/VICTIM%2fx", "/OWN%2f..%2fVICTIM%2fx", "/%2fVICTIM/x", "/VICTIM%00/x", "/OWN/%00/../VICTIM/x",
	"/%VI/x", "/UPPER/x", "/OWN/../UPPER/x",
}

// harmless are paths of OWN that must work.
var harmless = []string{"/OWN/x", "/OWN/articles/a%2Fb", "/OWN/%61", "/OWN/caf%C3%A9", "/OWN/a%20b", "/OWN/100%25", "/OWN/Upper",
	"/OWN/a@b:c"}

// fill puts names into a path.
func fill(path, victim, own string) string {
	first := fmt.Sprintf("%%%02x", victim[0]) // an encoded letter
	return strings.NewReplacer("VICTIM", victim, "OWN", own, "%VI", first+victim[1:], "UPPER", strings.ToUpper(victim)).Replace(path)
}

// TestNoPublisherReachesThePathsOfAnother sends paths that servers read differently through what caddy/README, authz/README and
// docs/proxy.md recommend for several publishers, to backends that read them in many ways. No page runs the handler of another
// publisher's path, and the paths that browsers really send work.
func TestNoPublisherReachesThePathsOfAnother(t *testing.T) {
	readme, err := os.ReadFile("../caddy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "only.js")
	writeFiles(t, map[string]string{file: block(t, string(readme), "", "js")})
	javaScript := func(kind string) string {
		addr := servertest.FreeAddress(t)
		start(t, addr, exec.Command(nodeJS(t), "peers/paths.js", addr, kind, file))
		return addr
	}
	mux := http.NewServeMux()
	for name := range pathOwners {
		mux.Handle("/"+name+"/", routeOf(name))
	}
	backends := map[string]string{
		"Node http":                javaScript("raw"),
		"Node http, cleaned":       javaScript("cleaned"),
		"Express":                  javaScript("express"),
		"PHP":                      startPHP(t, phpPaths),
		"Go ServeMux":              serve(t, mux),
		"Go, as Java servers do":   serve(t, http.HandlerFunc(withoutParameters)),
		"Go, decoded twice":        serve(t, http.HandlerFunc(decodedTwice)),
		"Go, a route for the rest": serve(t, http.HandlerFunc(withARest)),
	}
	mw, err := ampcors.New(ampcors.Config{Publishers: []string{"www.example.com", "shop.example"}, Credentialed: true})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := authz.New(mw, authz.NGINX)
	if err != nil {
		t.Fatal(err)
	}
	asked := serve(t, handler)
	program, caddy := buildAmpcors(t), gatewayCaddy(t)
	gateway := func(marker, backend string) string {
		addr, dir := servertest.FreeAddress(t), t.TempDir()
		site := strings.NewReplacer("localhost:8080", addr, "localhost:3000", backend).Replace(block(t, string(readme), marker, "caddyfile"))
		name := filepath.Join(dir, "Caddyfile")
		writeFiles(t, map[string]string{name: "{\n\tadmin off\n}\n" + site})
		start(t, addr, caddy("run", "--config", name))
		return addr
	}
	sent := 0
	for name, backend := range backends {
		proxy, _ := startServeProxy(t, program, backend, ampcors.Config{Publishers: []string{"www.example.com", "shop.example"},
			Credentialed: true})
		for _, g := range []struct {
			name, addr string
		}{
			{"Caddy", gateway("<!-- paths: a test runs what follows -->\n", backend)},
			{"nginx", startAuthzNginx(t, asked, backend)},
			{"serve-proxy", proxy},
		} {
			t.Run(g.name+", "+name, func(t *testing.T) {
				for victim := range pathOwners {
					for own, publisher := range pathOwners {
						if own == victim {
							continue
						}
						for _, path := range confusing {
							path = fill(path, victim, own)
							resp := sendRaw(t, g.addr, path, publisher)
							if sent++; resp.Header.Get("X-Route") == victim && resp.Header.Get("X-Ran") != "" {
								t.Errorf("a page of %s, with %s, runs /%s/: %s %v", publisher, path, victim, resp.Status, resp.Header)
							}
						}
						for _, path := range harmless {
							path = fill(path, victim, own)
							resp := sendRaw(t, g.addr, path, publisher)
							if sent++; resp.StatusCode != http.StatusOK || resp.Header.Get("X-Route") != own || resp.Header.Get("X-Ran") == "" ||
								resp.Header.Get("Access-Control-Allow-Origin") != "https://"+publisher || resp.Header.Get("X-For") != publisher {
								t.Errorf("a page of %s cannot use %s: %s %v", publisher, path, resp.Status, resp.Header)
							}
						}
					}
				}
			})
		}
	}
	t.Logf("%d paths, %d requests, %d backends, 3 gateways", len(confusing)+len(harmless), sent, len(backends))
}

// TestALocationOfNginxIsNotThePathOfABackend is why authz/README recommends no location for each publisher: nginx chooses the
// location by the decoded and cleaned path, and passes the path on as it came.
func TestALocationOfNginxIsNotThePathOfABackend(t *testing.T) {
	file, backend, addr := filepath.Join(t.TempDir(), "only.js"), servertest.FreeAddress(t), servertest.FreeAddress(t)
	writeFiles(t, map[string]string{file: "const only = () => (req, res, next) => next()"})
	start(t, backend, exec.Command(nodeJS(t), "peers/paths.js", backend, "raw", file))
	site := "server {\nlisten " + addr + ";\n"
	for name := range pathOwners {
		site += fmt.Sprintf("location /%[1]s/ {\nadd_header X-Location %[1]s always;\nproxy_pass http://%[2]s;\n}\n", name, backend)
	}
	runNginx(t, addr, site+"}\n")
	resp := sendRaw(t, addr, "/news/articles/..%2f..%2fshop/x", "shop.example")
	if location, route := resp.Header.Get("X-Location"), resp.Header.Get("X-Route"); location != "shop" || route != "news" {
		t.Errorf("nginx chooses %q, and the backend %q; authz/README says that they differ", location, route)
	}
}

// block returns the code block of a language behind a marker.
func block(t testing.TB, text, marker, language string) string {
	t.Helper()
	_, text, ok := strings.Cut(text, marker+"```"+language+"\n")
	text, _, ok2 := strings.Cut(text, "```\n")
	if !ok || !ok2 {
		t.Fatalf("there is no block of %s after %q", language, marker)
	}
	return text
}

// sendRaw posts to a path that no client changes, from a page of a publisher.
func sendRaw(t *testing.T, addr, path, publisher string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nOrigin: https://%s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", path, addr,
		publisher)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	resp.Body.Close()
	return resp
}

// routeOf is the handler of a publisher's paths. As the README says, it compares the publisher that calls.
func routeOf(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := r.Header.Get("Ampcors-Publisher")
		w.Header().Set("X-Route", name)
		w.Header().Set("X-For", caller)
		if caller != "" && caller != pathOwners[name] {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("X-Ran", "true")
	})
}

// run runs the route of a path.
func run(w http.ResponseWriter, r *http.Request, path string) {
	for name := range pathOwners {
		if strings.HasPrefix(path, "/"+name+"/") {
			routeOf(name).ServeHTTP(w, r)
			return
		}
	}
	http.NotFound(w, r)
}

var parameters = regexp.MustCompile(";[^/]*")

// withoutParameters removes what follows ; in a segment, before it cleans the path.
func withoutParameters(w http.ResponseWriter, r *http.Request) {
	run(w, r, cleaned(parameters.ReplaceAllString(r.URL.Path, "")))
}

func decodedTwice(w http.ResponseWriter, r *http.Request) {
	again := strings.NewReplacer("%2f", "/", "%2F", "/", "%2e", ".", "%2E", ".", "%5c", `\`).Replace(r.URL.Path)
	run(w, r, cleaned(again))
}

// withARest runs the route of /shop/ for each path that does not begin with /news/, as it came.
func withARest(w http.ResponseWriter, r *http.Request) {
	if raw := r.URL.EscapedPath(); strings.HasPrefix(raw, "/news/") {
		routeOf("news").ServeHTTP(w, r)
	} else {
		routeOf("shop").ServeHTTP(w, r)
	}
}

// cleaned resolves dot segments and empty ones, and reads \ as /.
func cleaned(path string) string { return filepath.Clean(strings.ReplaceAll(path, `\`, "/")) }

// phpPaths is a front controller that decodes and cleans the path.
const phpPaths = `<?php
$owners = ['news' => 'www.example.com', 'shop' => 'shop.example'];
$caller = $_SERVER['HTTP_AMPCORS_PUBLISHER'] ?? '';
$segments = [];
foreach (explode('/', str_replace('\\', '/', rawurldecode(explode('?', $_SERVER['REQUEST_URI'])[0]))) as $segment) {
	if ($segment === '..') array_pop($segments);
	elseif ($segment !== '' && $segment !== '.') $segments[] = $segment;
}
$name = $segments[0] ?? '';
if (!isset($owners[$name])) { http_response_code(404); exit; }
header("X-Route: $name");
header("X-For: $caller");
if ($caller !== '' && $caller !== $owners[$name]) { http_response_code(403); exit; }
header('X-Ran: true');
`
