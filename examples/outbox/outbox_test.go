package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/internal/servertest"
)

// TestMain runs the program itself if a test has started it.
func TestMain(m *testing.M) {
	if os.Getenv("OUTBOX_SERVER") != "" {
		if err := run(context.Background(), os.Args[1:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	_ = flag.Set("test.parallel", "16") // the tests wait more than they work
	os.Exit(m.Run())
}

// An engine is an IndexNow service that is slow, and sometimes busy.
type engine struct {
	t        *testing.T
	mu       sync.Mutex
	requests []*request
	killed   map[string]time.Time // when, by server
	url      string
	changed  *sync.Cond                                   // requests
	answer   func(n int) (status int, header http.Header) // to request n
}

// A request is one that the engine got.
type request struct {
	server string // its User-Agent
	urls   []string
	status int
	ended  time.Time // zero: the engine is still at work
}

func newEngine(t *testing.T, answer func(n int) (int, http.Header)) (*engine, string) {
	e := &engine{t: t, answer: answer, killed: make(map[string]time.Time)}
	e.changed = sync.NewCond(&e.mu)
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	e.url = s.URL
	return e, s.URL
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		URLList []string
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest) // the server was killed while it sent the request
		return
	}
	e.mu.Lock()
	q := &request{server: r.Header.Get("User-Agent"), urls: body.URLList}
	n := len(e.requests)
	e.requests = append(e.requests, q)
	e.changed.Broadcast()
	e.mu.Unlock()
	status, header := e.answer(n)
	e.mu.Lock()
	q.status = status
	e.mu.Unlock()
	maps.Copy(w.Header(), header)
	time.Sleep(rand.N(100 * time.Millisecond))
	w.WriteHeader(status)
	e.mu.Lock()
	q.ended = time.Now()
	e.mu.Unlock()
}

// kill waits until a server has a request in progress, and then kills it.
func (e *engine) kill(server *program) {
	e.mu.Lock()
	defer e.mu.Unlock()
	isActive := func(q *request) bool { return q.server == server.name && q.ended.IsZero() }
	for !slices.ContainsFunc(e.requests, isActive) {
		e.changed.Wait()
	}
	_ = server.cmd.Process.Kill()
	e.killed[server.name] = time.Now()
	_ = server.cmd.Wait()
}

// wasLost reports whether the server of a request may have been killed before it stored the answer.
func (e *engine) wasLost(q *request) bool {
	at, wasKilled := e.killed[q.server]
	return wasKilled && q.ended.After(at.Add(-5*time.Second))
}

// sent returns how often the engine accepted each URL: kept counts only the requests whose answers
// were not lost, and all counts all of them.
func (e *engine) sent() (kept, all map[string]int) {
	kept, all = make(map[string]int), make(map[string]int)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range e.requests {
		for _, u := range q.urls {
			if q.status == http.StatusOK {
				all[u]++
				if !e.wasLost(q) {
					kept[u]++
				}
			}
		}
	}
	return kept, all
}

// A program is a server in a process of its own.
type program struct {
	name, url string
	cmd       *exec.Cmd
}

func start(t *testing.T, dsn, endpoint, name string, flags ...string) *program {
	t.Helper()
	address := servertest.FreeAddress(t)
	p := &program{name: name, url: "http://" + address}
	p.cmd = exec.Command(os.Args[0], "-database", dsn, "-listen", address, "-endpoint", endpoint, "-user-agent", name,
		"-delay", "1s", "-hold", "1h", "-timeout", "10s")
	p.cmd.Args = append(p.cmd.Args, flags...)
	p.cmd.Env = append(os.Environ(), "OUTBOX_SERVER=1", "INDEXNOW_KEY=0123456789abcdef")
	p.cmd.Stdout, p.cmd.Stderr = t.Output(), t.Output()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, err := p.stats(); err == nil {
			return p
		}
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("%s is not ready", name)
		}
	}
}

func (p *program) add(urls ...string) error {
	resp, err := http.Post(p.url+"/pages", "text/plain", strings.NewReader(strings.Join(urls, "\n")))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s %q", resp.Status, text)
	}
	return nil
}

func (p *program) stats() (s Stats, err error) {
	resp, err := http.Get(p.url + "/stats")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s", resp.Status)
	}
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// drain waits until nothing is to be sent.
func (p *program) drain(t *testing.T, within time.Duration) Stats {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		stats, err := p.stats()
		if err != nil {
			t.Fatal(err)
		}
		if stats.Waiting == 0 {
			return stats
		}
		if time.Since(begun) > within {
			t.Fatalf("after %s: %+v", within, stats)
		}
	}
}

// A local is an Outbox in the process of the test.
type local struct {
	*Outbox
	t *testing.T
	*engine
}

// add adds URLs in a transaction of their own.
func (l local) add(urls ...string) {
	l.t.Helper()
	if err := pgx.BeginFunc(l.t.Context(), l.pool, func(tx pgx.Tx) error {
		return l.Add(l.t.Context(), tx,
			urls...)
	}); err != nil {
		l.t.Fatal(err)
	}
}

// await waits until the engine has got this many requests and the outbox has these Stats.
func (l local) await(requests int, want Stats) {
	l.t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		got, err := l.Stats(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		l.mu.Lock()
		n := len(l.requests)
		l.mu.Unlock()
		if got == want && n == requests {
			return
		}
		if time.Since(begun) > 2*time.Minute {
			l.t.Fatalf("%d requests, %+v; want %d, %+v", n, got, requests, want)
		}
	}
}

var databases atomic.Int64

// newLocal starts an Outbox in a database of its own.
func newLocal(t *testing.T, server *servertest.Server, hold, timeout time.Duration,
	answer func(n int) (status int, header http.Header)) local {
	t.Helper()
	l := prepareLocal(t, server, hold, timeout, answer)
	l.start()
	return l
}

func (l local) start() {
	l.t.Helper()
	if err := l.Start(context.Background()); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = l.Stop(context.Background()) })
}

// prepareLocal returns an Outbox that does not run yet.
func prepareLocal(t *testing.T, server *servertest.Server, hold, timeout time.Duration,
	answer func(n int) (status int, header http.Header)) local {
	t.Helper()
	t.Parallel()
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, servertest.DSN(server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(ctx)
	name := fmt.Sprintf("outbox%d", databases.Add(1))
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(ctx, strings.Replace(servertest.DSN(server.Addr), "/postgres?", "/"+name+"?", 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	e, endpoint := newEngine(t, answer)
	client, err := indexnow.New(indexnow.Config{Key: "0123456789abcdef", Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	o, err := NewOutbox(pool, client, Config{Delay: time.Second, Hold: hold, Timeout: timeout, GiveUpAfter: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return local{o, t, e}
}

const pageURL = "https://www.example.com/"

func ok(int) (int, http.Header) { return http.StatusOK, nil }

// TestAnOutbox shares one PostgreSQL.
func TestAnOutbox(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	for name, test := range map[string]func(*testing.T, *servertest.Server){
		"sends the URLs of a host together, and each once":                     sendsTheUrlsOfAHostTogether,
		"holds back what it has just sent":                                     holdsBackWhatItHasJustSent,
		"sends again what changes while it is sent, and removes it after Hold": sendsAgainWhatChangesWhileItIsSent,
		"announces nothing that was rolled back":                               announcesNothingThatWasRolledBack,
		"sends others' URLs while a transaction is slow, and then its own":     sendsOthersUrlsWhileATransactionIsSlow,
		"sends what is left of a large batch after a failure":                  sendsWhatIsLeftOfALargeBatchAfterAFailure,
		"sends URLs whose job was deleted":                                     sendsUrlsWhoseJobWasDeleted,
		"retries what fails, and waits as long as the engine says":             retriesWhatFails,
		"keeps what is rejected, until it is added again":                      keepsWhatIsRejected,
		"loses no page beside one that the engine rejects":                     losesNoPageBesideOneThatIsRejected,
		"sends what waits behind a batch that is rejected":                     sendsWhatWaitsBehindABatchThatIsRejected,
		"rejects what is not a URL, and adds nothing then":                     rejectsWhatIsNotAUrl,
		"works with one connection":                                            worksWithOneConnection,
		"rejects what no key file covers any more":                             rejectsWhatNoKeyFileCoversAnyMore,
	} {
		t.Run(name, func(t *testing.T) { test(t, server) })
	}
}

func sendsTheUrlsOfAHostTogether(t *testing.T, server *servertest.Server) {
	l := prepareLocal(t, server, time.Hour, 30*time.Second, ok)
	long := pageURL // as long as a URL may be, and hard to compress
	for len(long) < 7900 {
		long += strconv.FormatUint(rand.Uint64(), 36)
	}
	l.add(pageURL+"1", pageURL+"2", "HTTPS://WWW.EXAMPLE.COM/1", long)
	l.add(pageURL+"2", pageURL+"3", long)
	if stats, err := l.Stats(t.Context()); err != nil || stats != (Stats{Waiting: 4}) {
		t.Errorf("%+v, %v", stats, err)
	}
	servertest.Until(t, "all are ready", time.Minute, func() (isReady bool) {
		_ = l.pool.QueryRow(t.Context(), `SELECT bool_and(ready_at <= clock_timestamp()) FROM outbox.page`).Scan(&isReady)
		return isReady
	})
	l.start()
	l.await(1, Stats{Sent: 4})
}

func holdsBackWhatItHasJustSent(t *testing.T, server *servertest.Server) {
	l := newLocal(t, server, 30*time.Second, 30*time.Second, ok)
	l.add(pageURL)
	l.await(1, Stats{Sent: 1})
	l.add(pageURL)
	l.await(1, Stats{Waiting: 1})
	l.await(2, Stats{Sent: 1})
	if wait := l.requests[1].ended.Sub(l.requests[0].ended); wait < 30*time.Second {
		t.Errorf("sent again after %s", wait)
	}
}

func sendsAgainWhatChangesWhileItIsSent(t *testing.T, server *servertest.Server) {
	var l local
	l = newLocal(t, server, time.Second, 30*time.Second, func(n int) (int, http.Header) {
		if n == 0 {
			l.add(pageURL)
		}
		return http.StatusOK, nil
	})
	l.add(pageURL)
	l.await(2, Stats{})
}

func announcesNothingThatWasRolledBack(t *testing.T, server *servertest.Server) {
	l := newLocal(t, server, time.Hour, 30*time.Second, ok)
	tx, err := l.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Add(t.Context(), tx, pageURL+"draft"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.add(pageURL + "1")
	l.await(1, Stats{Sent: 1})
	if got := l.requests[0].urls; len(got) != 1 || got[0] != pageURL+"1" {
		t.Errorf("%q", got)
	}
}

func sendsOthersUrlsWhileATransactionIsSlow(t *testing.T, server *servertest.Server) {
	var l local
	var slow pgx.Tx
	l = newLocal(t, server, time.Hour, 30*time.Second, func(n int) (int, http.Header) {
		if n == 0 { // page 1 and 2 are being sent
			var err error
			if slow, err = l.pool.Begin(context.Background()); err != nil {
				t.Error(err)
			}
			if err := l.Add(context.Background(), slow, pageURL+"2", pageURL+"3", "https://other.example/1"); err != nil {
				t.Error(err)
			}
		}
		return http.StatusOK, nil
	})
	l.add(pageURL+"1", pageURL+"2")
	l.await(1, Stats{Waiting: 1, Sent: 1}) // the result of page 2 has to wait
	l.add(pageURL+"4", "https://other.example/2")
	l.await(2, Stats{Waiting: 2, Sent: 2}) // the host's job is at work
	if err := slow.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	l.await(4, Stats{Waiting: 1, Sent: 5}) // page 2 has changed, and is held back
}

func sendsWhatIsLeftOfALargeBatchAfterAFailure(t *testing.T, server *servertest.Server) {
	l := newLocal(t, server, time.Hour, 30*time.Second, func(n int) (int, http.Header) {
		if n == 0 {
			return http.StatusServiceUnavailable, nil
		}
		return http.StatusOK, nil
	})
	var urls []string
	for i := range maxBatch + 1000 {
		urls = append(urls, fmt.Sprint(pageURL, i))
	}
	l.add(urls...)
	l.await(4, Stats{Sent: len(urls)}) // after the failure two pages, then all others
}

func sendsUrlsWhoseJobWasDeleted(t *testing.T, server *servertest.Server) {
	l := newLocal(t, server, time.Hour, 30*time.Second, func(n int) (int, http.Header) {
		if n == 0 {
			return http.StatusTooManyRequests, http.Header{"Retry-After": {"3600"}}
		}
		return http.StatusOK, nil
	})
	l.add(pageURL)
	l.await(1, Stats{Waiting: 1})
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if time.Since(begun) > 2*time.Minute {
			t.Fatal("no job waits for its Retry-After")
		}
		if tag, err := l.pool.Exec(t.Context(), `DELETE FROM outbox.river_job WHERE kind = 'outbox_send' AND state = `+
			`'scheduled'`); err != nil {
			t.Fatal(err)
		} else if tag.RowsAffected() > 0 {
			break
		}
	}
	l.await(2, Stats{Sent: 1})
}

func retriesWhatFails(t *testing.T, server *servertest.Server) {
	l := newLocal(t, server, time.Hour, 30*time.Second, func(n int) (int, http.Header) {
		switch n {
		case 0:
			return http.StatusServiceUnavailable, nil
		case 1:
			return http.StatusTooManyRequests, http.Header{"Retry-After": {"10"}}
		}
		return http.StatusOK, nil
	})
	l.add(pageURL)
	l.await(2, Stats{Waiting: 1})
	l.add(pageURL + "other") // it has to wait too
	l.await(3, Stats{Sent: 2})
	if wait := l.requests[2].ended.Sub(l.requests[1].ended); wait < 10*time.Second {
		t.Errorf("sent again after %s", wait)
	}
}

func keepsWhatIsRejected(t *testing.T, server *servertest.Server) {
	l := newLocal(t, server, time.Hour, 30*time.Second, func(n int) (int, http.Header) {
		if n == 0 {
			return http.StatusForbidden, nil
		}
		return http.StatusOK, nil
	})
	l.add(pageURL)
	l.await(1, Stats{Failed: 1})
	l.add(pageURL)
	l.await(2, Stats{Sent: 1})
}

func sendsWhatWaitsBehindABatchThatIsRejected(t *testing.T, server *servertest.Server) {
	l := newLocal(t, server, time.Hour, 30*time.Second,
		func(int) (int, http.Header) { return http.StatusUnprocessableEntity, nil })
	var urls []string
	for i := range maxBatch {
		urls = append(urls, fmt.Sprint(pageURL, i))
	}
	l.add(urls...)
	isSent := func(url string) func() bool {
		return func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return slices.ContainsFunc(l.requests, func(q *request) bool { return slices.Contains(q.urls, url) })
		}
	}
	servertest.Until(t, "the batch is sent", time.Minute, isSent(urls[0]))
	l.add(pageURL)
	servertest.Until(t, "the page is sent", 2*time.Minute, isSent(pageURL))
}

func losesNoPageBesideOneThatIsRejected(t *testing.T, server *servertest.Server) {
	var l local
	l = newLocal(t, server, time.Hour, 30*time.Second, func(n int) (int, http.Header) {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch urls := l.requests[n].urls; {
		case len(urls) > 300:
			return http.StatusRequestEntityTooLarge, nil
		case slices.Contains(urls, pageURL+"5"):
			return http.StatusUnprocessableEntity, nil
		}
		return http.StatusOK, nil
	})
	var urls []string
	for i := range 400 {
		urls = append(urls, fmt.Sprint(pageURL, i))
	}
	l.add(urls...)
	servertest.Until(t, "all other pages are sent", time.Minute, func() bool {
		stats, err := l.Stats(t.Context())
		return err == nil && stats == Stats{Sent: 399, Failed: 1}
	})
	var why string
	if err := l.pool.QueryRow(t.Context(), `SELECT error FROM outbox.page WHERE url = $1`,
		pageURL+"5").Scan(&why); err != nil ||
		!strings.Contains(why, "422") {
		t.Errorf("%q, %v", why, err)
	}
}

func rejectsWhatIsNotAUrl(t *testing.T, server *servertest.Server) {
	l := newLocal(t, server, time.Hour, 30*time.Second, ok)
	for _, path := range []string{"/healthz", "/readyz"} {
		w := httptest.NewRecorder()
		if handler(l.pool, l.Outbox).ServeHTTP(w, httptest.NewRequest("GET", path, nil)); w.Code != http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	down, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer down.Close()
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503} {
		w := httptest.NewRecorder()
		if handler(down, nil).ServeHTTP(w, httptest.NewRequest("GET", path, nil)); w.Code != want {
			t.Errorf("%s without the database: %d; want %d", path, w.Code, want)
		}
	}
	w := httptest.NewRecorder()
	handler(l.pool, l.Outbox).ServeHTTP(w, httptest.NewRequest("POST", "/pages",
		strings.NewReader(pageURL+"\nftp://www.example.com/\n")))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "ftp://www.example.com/") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	l.await(0, Stats{})
}

func rejectsWhatNoKeyFileCoversAnyMore(t *testing.T, server *servertest.Server) {
	l := prepareLocal(t, server, time.Hour, 30*time.Second, ok)
	l.add(pageURL+"a/1", pageURL+"b/1")
	client, err := indexnow.New(indexnow.Config{Key: "0123456789abcdef", KeyLocations: []string{pageURL + "a/k.txt"},
		Endpoint: l.url})
	if err != nil {
		t.Fatal(err)
	}
	l.client = client
	l.start()
	l.await(1, Stats{Sent: 1, Failed: 1})
}

// worksWithOneConnection starts the program, which also migrates.
func worksWithOneConnection(t *testing.T, server *servertest.Server) {
	t.Parallel()
	e, endpoint := newEngine(t, ok)
	admin, err := pgx.Connect(t.Context(), servertest.DSN(server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE one"); err != nil {
		t.Fatal(err)
	}
	p := start(t, strings.Replace(servertest.DSN(server.Addr), "/postgres?", "/one?", 1)+"&pool_max_conns=1", endpoint,
		"one", "-timeout",
		"1m")
	if err := p.add(pageURL); err != nil {
		t.Fatal(err)
	}
	p.drain(t, time.Minute)
	if kept, _ := e.sent(); kept[pageURL] != 1 {
		t.Errorf("%v", kept)
	}
}

// Whatever is wrong with -database, the error does not have the password.
func TestNoErrorHasThePassword(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	for _, connString := range servertest.WrongConnStrings() {
		if err := run(t.Context(), []string{"-database", connString}); err == nil ||
			strings.Contains(err.Error(), servertest.Secret) {
			t.Errorf("%q: %v", connString, err)
		}
	}
}

// Hosts can have keys of their own, and key files of folders.
func TestTheKeysOfHostsAndFolders(t *testing.T) {
	t.Setenv("INDEXNOW_KEY", "")
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, []byte(`{"www.example.com": ["0123456789abcdef"], "other.example": `+
		`["fedcba9876543210"]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	client, err := newClient(indexnow.Config{KeyLocations: []string{"https://www.example.com/a/k.txt",
		"https://other.example/k.txt"}}, file)
	if err != nil {
		t.Fatal(err)
	}
	requests, err := client.Requests(t.Context(), "https://www.example.com/a/1", "https://other.example/1",
		"https://www.example.com/1")
	if len(requests) != 2 || !strings.Contains(string(requests[0].Body),
		`"key":"0123456789abcdef","keyLocation":"https://www.example.com/a/k.txt"`) ||
		!strings.Contains(string(requests[1].Body), `"key":"fedcba9876543210"`) || err == nil ||
		!strings.Contains(err.Error(), "urls[2]") {
		t.Errorf("%s, %v", requests, err)
	}
	for want, args := range map[string][]string{
		"no such file":                              {"-keys", file + "x"},
		"is not a JSON object":                      {"-keys", "outbox_test.go"},
		"KeyLocations[0] \"x\" does not begin with": {"-keys", file, "-key-location", "x"},
	} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", args, err, want)
		}
	}
	t.Setenv("INDEXNOW_KEY", "0123456789abcdef")
	if err := run(t.Context(), []string{"-keys", file}); err == nil ||
		!strings.Contains(err.Error(), "exclude each other") {
		t.Error(err)
	}
}

func TestTheFormatOfTheLog(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"-log-format", "xml"}); err == nil ||
		!strings.Contains(err.Error(), "want text or json") {
		t.Error(err)
	}
}

// A page of another site, in a browser on the same machine, cannot post.
func TestCrossSiteRequestsAreDenied(t *testing.T) {
	t.Parallel()
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r := httptest.NewRequest("POST", "http://localhost:8080/pages", strings.NewReader("https://www.example.com/a"))
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		if handler(nil, nil).ServeHTTP(w, r); w.Code != http.StatusForbidden {
			t.Errorf("%s: %s: %d", header, value, w.Code)
		}
	}
}

// Three servers share an outbox. Twice, in CI ten times, one is killed while it waits for an
// answer.
func TestNoURLIsLostWhenServersAreKilled(t *testing.T) {
	t.Parallel()
	kills := 2
	if os.Getenv("AMPCORS_CI") == "1" {
		kills = 10
	}
	dsn := servertest.DSN(servertest.Postgres(t).Addr)
	var isCalm atomic.Bool // no server is killed any more
	e, endpoint := newEngine(t, func(int) (int, http.Header) {
		if !isCalm.Load() && rand.N(10) == 0 {
			return http.StatusServiceUnavailable, nil
		}
		return http.StatusOK, nil
	})
	servers := make([]*program, 3)
	for i := range servers {
		servers[i] = start(t, dsn, endpoint, fmt.Sprintf("server-%d", i))
	}
	var mu sync.Mutex // guards servers
	added, unknown := make(map[string]bool), make(map[string]bool)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			urls := make([]string, 5)
			for i := range urls {
				urls[i] = fmt.Sprintf("https://site%d.example/%d", n%20, 5*n+i)
			}
			mu.Lock()
			server := servers[rand.N(len(servers))]
			mu.Unlock()
			into := added
			if server.add(urls...) != nil {
				into = unknown // it may have been killed after its commit
			}
			for _, u := range urls {
				into[u] = true
			}
		}
	}()
	begun := time.Now()
	for n := range kills {
		i := rand.N(len(servers))
		e.kill(servers[i])
		next := start(t, dsn, endpoint, fmt.Sprintf("server-%d", len(servers)+n))
		mu.Lock()
		servers[i] = next
		mu.Unlock()
	}
	isCalm.Store(true)
	close(stop)
	<-ended
	// A job's waits double, so its last one is not longer than all the time before it.
	stats := servers[0].drain(t, time.Since(begun)+2*time.Minute)

	kept, all := e.sent()
	twice, shared := 0, make(map[string]bool)
	for u := range added {
		if all[u] == 0 {
			t.Errorf("%s was added and never sent", u)
		}
	}
	for u, n := range all {
		if !added[u] && !unknown[u] {
			t.Errorf("%s was sent, but not added", u)
		}
		if kept[u] > 1 {
			t.Errorf("%s was sent %d times by servers that were not killed then", u, kept[u])
		}
		if n > 1 {
			twice++
		}
	}
	for _, q := range e.requests {
		shared[q.server] = true
	}
	if stats.Sent != len(all) || stats.Failed != 0 {
		t.Errorf("%+v; want %d sent", stats, len(all))
	}
	t.Logf("%d URLs in %d requests of %d servers; %d were sent again because a server was killed before it noted the "+
		"answer", len(all),
		len(e.requests), len(shared), twice)
}
