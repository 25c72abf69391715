package main

import (
	"bytes"
	"context"
	"html/template"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ampcors/ampcors"
	"github.com/ampcors/ampcors/configfile"
	"github.com/ampcors/ampcors/internal/servertest"
)

// TestTheProgramServesAndItsCurlLinesShowWhatTheySay starts the program, and runs each
// curl line that it prints in a shell.
func TestTheProgramServesAndItsCurlLinesShowWhatTheySay(t *testing.T) {
	servertest.Program(t, "install curl (Debian: apt-get install curl)", "curl")
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, "localhost:0", in)
		in.Close()
	}()

	var printed bytes.Buffer
	lines := make([]byte, 1<<16)
	for !strings.HasSuffix(printed.String(), "\n\n") || !strings.Contains(printed.String(), "POST http") {
		n, err := out.Read(lines)
		if err != nil {
			t.Fatalf("after %q: %v", printed.String(), err)
		}
		printed.Write(lines[:n])
	}
	examples := regexp.MustCompile(`(?m)^# (.*): (\d+), (.*)\n(curl .*)$`).FindAllStringSubmatch(printed.String(), -1)
	if len(examples) != 7 {
		t.Fatalf("%d examples are printed:\n%s", len(examples), printed.String())
	}
	for _, example := range examples {
		title, status, outcome, command := example[1], example[2], example[3], example[4]
		answer, err := exec.Command("sh", "-c", command).Output()
		if err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		if !strings.HasPrefix(string(answer), "HTTP/1.1 "+status+" ") {
			t.Errorf("%s: want %s, got\n%s", title, status, answer)
		}
		granted := strings.Contains(string(answer), "Access-Control-Allow-Origin: https://")
		if strings.Contains(outcome, "AMP-Email-Allow-Sender") {
			granted = strings.Contains(strings.ToLower(string(answer)), "amp-email-allow-sender: news@example.com")
		}
		if granted != (status[0] == '2') || status == "403" && !strings.Contains(string(answer), outcome) {
			t.Errorf("%s (%s): got\n%s", title, outcome, answer)
		}
	}

	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the server does not stop")
	}
}

// TestTheFileHasTheConfigurationOfTheProgram, so that config.json stays up to date.
func TestTheFileHasTheConfigurationOfTheProgram(t *testing.T) {
	got, err := configfile.File{Path: "config.json"}.Config()
	if err != nil {
		t.Fatal(err)
	}
	want := config()
	want.Observe = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("config.json has\n%+v; the program\n%+v", got, want)
	}
}

func TestAnAddressInUseIsAnErrorThatNamesTheFlag(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	err := run(context.Background(), server.Listener.Addr().String(), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "-addr") {
		t.Errorf("got %v", err)
	}
}

func TestThePageShowsTheDecisionOnAnyOrigin(t *testing.T) {
	mw, err := ampcors.New(config())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler(mw))
	defer server.Close()
	get := func(path string) (int, string) {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}

	if status, body := get("/"); status != 200 || strings.Contains(body, "verdict good") || strings.Contains(body, "verdict bad") {
		t.Errorf("the empty page: %d\n%s", status, body)
	}
	allowed := 0
	for _, s := range append(samples(), sample{"Markup", `"><script>alert(1)</script>`}, sample{"Empty", ""}) {
		d := mw.CheckOrigin(s.Origin)
		if d.Allowed {
			allowed++
		}
		t.Run(s.Title, func(t *testing.T) {
			status, body := get(s.Link())
			verdict := map[bool]string{true: "Allowed: ", false: "Denied: "}[d.Allowed]
			steps := mw.Explain(s.Origin).Steps
			for _, want := range []string{verdict + d.Reason.String(), "<title>" + verdict + "how",
				template.HTMLEscapeString(steps[len(steps)-2].Detail)} {
				if status != 200 || !strings.Contains(body, want) || strings.Contains(body, "<script") {
					t.Errorf("%s: status %d; want %q in\n%s", s.Title, status, want, body)
				}
			}
		})
	}
	if allowed != 6 {
		t.Errorf("%d of the samples are allowed; want the first 6", allowed)
	}
	for _, typed := range []string{"www.example.com", "+www.example.com%20"} {
		t.Run(typed, func(t *testing.T) {
			if _, body := get("/?origin=" + typed); !strings.Contains(body, `value="https://www.example.com"`) ||
				!strings.Contains(body, "Allowed: own_origin") {
				t.Errorf("a host without a scheme is not completed:\n%s", body)
			}
		})
	}
	if status, _ := get("/elsewhere"); status != 404 {
		t.Errorf("/elsewhere: status %d", status)
	}
}

func TestTheAPISeesTheCallingPublisher(t *testing.T) {
	mw, err := ampcors.New(config())
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/api/subscribe", strings.NewReader(url.Values{"email": {"a@example.com"}}.Encode()))
	r.Header.Set("Origin", "https://my-town-news-example.cdn.ampproject.org")
	rec := httptest.NewRecorder()
	handler(mw).ServeHTTP(rec, r)
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), `"publisher":"my.town.news.example"`) {
		t.Errorf("status %d, %s", rec.Code, rec.Body)
	}
}
