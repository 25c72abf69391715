package e2e

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ampcors/ampcors/internal/servertest"
	"github.com/ampcors/ampcors/source"
)

// TestAMillionPublishersOnThreeServers runs three server processes with one Redis, and then
// with one PostgreSQL, under load. Publishers are revoked and added, and the database
// fails. No publisher may ever be denied, and no other origin allowed. Outside of CI, it is shorter.
func TestAMillionPublishersOnThreeServers(t *testing.T) {
	binary := buildServer(t)
	phases := []phase{
		{title: "publishers come and go", run: (*cluster).comeAndGo},
		{title: "database stopped and started", run: (*cluster).stopDatabase, isStale: true},
		{title: "database killed, and started after MaxStale", run: (*cluster).killDatabase, isStale: true},
		{title: "all servers cut off from the database", run: (*cluster).cutAll, isStale: true},
		{title: "one server cut off, and a publisher revoked", run: (*cluster).cutOne, isStale: true},
		{title: "publishers come and go again", run: (*cluster).comeAndGo},
	}
	publishers := 1_000_000
	switch os.Getenv("AMPCORS_CI") {
	case "":
		publishers, phases = 10_000, phases[:1]
	case "race": // which is not about numbers
		publishers = 20_000
	}
	t.Run("Redis", func(t *testing.T) {
		db := servertest.Redis(t)
		runCluster(t, binary, engine{store: newRedisStore(t, db.Addr), db: db, publishers: publishers, phases: phases})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		db := servertest.Postgres(t)
		runCluster(t, binary, engine{store: newPostgresStore(t, db.Addr), db: db, publishers: publishers, phases: phases})
	})
}

// An engine is a database, and what happens to it.
type engine struct {
	store
	db         *servertest.Server // that the servers connect to through a link; nil if they connect by themselves
	publishers int
	phases     []phase
	workers    int // that call each server; if zero, numWorkers
	goroutines int // that a server may have more at the end, because of connections
}

type phase struct {
	title   string
	run     func(c *cluster) (remark string)
	isStale bool // stale answers must be served
}

func buildServer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "server")
	build := []string{"build", "-o", binary}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		build = append(build, "-race")
	}
	if out, err := exec.Command("go", append(build, "./server")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

const (
	numServers = 3
	numWorkers = 4   // that call each server, if the engine does not say otherwise
	numHot     = 300 // publishers that most requests are for
	numToggled = 16  // publishers that are revoked and added again

	timeout  = 500 * time.Millisecond
	staleFor = 5 * time.Second
	patience = 2 * time.Minute // on a busy machine; how long it took is in the log
)

func publisherName(i int) string { return fmt.Sprintf("www.site-%d.example", i) }

// A node is a server process, and its link to the database, if it has one.
type node struct {
	url  string
	link *link
	cmd  *exec.Cmd
}

func startNode(t *testing.T, binary string, e engine) *node {
	t.Helper()
	var l *link
	database := ""
	if e.db != nil {
		l = newLink(t, e.db.Addr)
		database = l.addr
	}
	cmd := exec.Command(binary, append(e.flags(database), "-negative-ttl", "500ms", "-max-stale", staleFor.String(), "-timeout",
		timeout.String())...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return &node{"http://" + strings.TrimSpace(addr), l, cmd}
}

// stats is what a server reports at /stats.
type stats struct {
	Source      source.Stats
	Goroutines  int
	Connections int
	Heap        int64
}

func (n *node) stats(t *testing.T) (s stats) {
	t.Helper()
	resp, err := http.Get(n.url + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// An outcome is how a request ended.
type outcome int

const (
	allowed outcome = iota
	denied
	unavailable
	numOutcomes
)

// call sends a request from origin, and checks that the response is consistent.
func (c *cluster) call(n *node, origin string) outcome {
	r, err := http.NewRequest("GET", n.url+"/", nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Origin", origin)
	resp, err := c.client.Do(r)
	if err != nil {
		c.Errorf("%s: %v", origin, err)
		return unavailable
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	granted, after := resp.Header["Access-Control-Allow-Origin"], resp.Header.Get("Retry-After")
	switch {
	case resp.StatusCode == http.StatusOK && slices.Equal(granted, []string{origin}) && after == "":
		return allowed
	case resp.StatusCode == http.StatusForbidden && granted == nil && after == "":
		return denied
	case resp.StatusCode == http.StatusServiceUnavailable && granted == nil && after == "1":
		return unavailable
	}
	c.Errorf("%s: %s, %v", origin, resp.Status, resp.Header)
	return unavailable
}

// A publisher has a state: in the database, removed from it, or being changed.
type publisher struct {
	origins [3]string
	state   atomic.Int64 // 4n+1: in; 4n+3: out; even: being changed
}

func newPublisher(name string) *publisher {
	p := &publisher{origins: servertest.Origins(name)}
	p.state.Store(1)
	return p
}

func (p *publisher) change() { p.state.Add(1) }

// A cluster is the database, the servers and their load.
type cluster struct {
	*testing.T
	engine
	nodes  []*node
	client *http.Client

	hot     []*publisher
	toggled []*publisher
	names   []string // of toggled

	served   [numOutcomes]atomic.Int64 // requests for hot publishers
	invented [numOutcomes]atomic.Int64 // requests from invented origins
	others   atomic.Int64              // for toggled and rare publishers
}

// work sends requests to a server, one after another, until ctx ends.
func (c *cluster) work(ctx context.Context, n *node, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 5))
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(time.Millisecond)
		switch d := random.IntN(100); {
		case d < 70:
			p := c.hot[int(float64(numHot)*random.Float64()*random.Float64())]
			o := c.call(n, p.origins[random.IntN(3)])
			if c.served[o].Add(1); o == denied {
				c.Errorf("%s was denied", p.origins[2])
			}
		case d < 75:
			origin := servertest.Origins(publisherName(random.IntN(c.publishers)))[random.IntN(3)]
			if c.others.Add(1); c.call(n, origin) == denied {
				c.Errorf("%s was denied", origin)
			}
		case d < 90:
			origin := servertest.Origins(fmt.Sprintf("www.evil-%d-%d.example", seed, i))[random.IntN(3)]
			o := c.call(n, origin)
			if c.invented[o].Add(1); o == allowed {
				c.Errorf("%s was allowed", origin)
			}
		default:
			p := c.toggled[random.IntN(numToggled)]
			before := p.state.Load()
			o := c.call(n, p.origins[random.IntN(3)])
			c.others.Add(1)
			switch {
			case p.state.Load() != before:
			case before%4 == 1 && o == denied:
				c.Errorf("%s was denied", p.origins[2])
			case before%4 == 3 && o == allowed:
				c.Errorf("%s was allowed", p.origins[2])
			}
		}
	}
}

// seenBy waits until the outcome for each origin of the publisher is one of want at the
// server, and returns how long that took.
func (c *cluster) seenBy(n *node, p *publisher, limit time.Duration, want ...outcome) time.Duration {
	begun := time.Now()
	for _, origin := range p.origins {
		for {
			o := c.call(n, origin)
			took := time.Since(begun)
			if slices.Contains(want, o) {
				break
			}
			if took > limit {
				c.Errorf("%s, after %v: %d; want one of %v", origin, took, o, want)
				return took
			}
			time.Sleep(time.Millisecond)
		}
	}
	return time.Since(begun)
}

// toggle revokes a publisher or adds it, and returns how long it took until each of the
// servers had seen it.
func (c *cluster) toggle(i int, in bool, nodes []*node) (slowest time.Duration) {
	p, change, want := c.toggled[i], c.store.revoke, denied
	if in {
		change, want = c.store.add, allowed
	}
	p.change()
	if err := change(c.Context(), c.names[i]); err != nil {
		c.Fatal(err)
	}
	took := make([]time.Duration, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		// The requests themselves also take time on a busy machine.
		group.Go(func() { took[i] = c.seenBy(n, p, patience, want) })
	}
	group.Wait()
	p.change()
	return slices.Max(took)
}

// recovery waits until each server allows a publisher that it cannot have in memory.
func (c *cluster) recovery(phase int) time.Duration {
	begun := time.Now()
	for i, n := range c.nodes {
		p := newPublisher(publisherName(numHot + phase*numServers + i))
		c.seenBy(n, p, patience, allowed)
	}
	return time.Since(begun)
}

// phase does something under load, and records how the requests ended.
func (c *cluster) phase(name string, do func() (remark string)) (stale uint64) {
	c.Helper()
	time.Sleep(2 * time.Second) // until everything is as usual again
	sum := func() (stale uint64) {
		for _, n := range c.nodes {
			stale += n.stats(c.T).Source.Stale
		}
		return stale
	}
	var served, invented [numOutcomes]int64
	for o := range numOutcomes {
		served[o], invented[o] = c.served[o].Load(), c.invented[o].Load()
	}
	before, begun := sum(), time.Now()
	remark := do()
	took := time.Since(begun)
	stale = sum() - before
	for o := range numOutcomes {
		served[o], invented[o] = c.served[o].Load()-served[o], c.invented[o].Load()-invented[o]
	}
	c.Logf("%s: %.1f s; publishers: %d allowed, %d answered 503; invented origins: %d denied, %d answered 503; %d stale answers; %s", name,
		took.Seconds(), served[allowed], served[unavailable], invented[denied], invented[unavailable], stale, remark)
	return stale
}

func round(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

func runCluster(t *testing.T, binary string, e engine) {
	c := newCluster(t, binary, e)
	idle := c.countGoroutines()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	for i, n := range c.nodes {
		for j := range cmp.Or(e.workers, numWorkers) {
			load.Go(func() { c.work(ctx, n, uint64(i*numWorkers+j)) })
		}
	}

	for _, p := range e.phases {
		if stale := c.phase(p.title, func() string { return p.run(c) }); stale == 0 && p.isStale {
			t.Errorf("%s: nothing was served stale", p.title)
		}
	}

	cancel()
	load.Wait()
	c.client.CloseIdleConnections()
	c.checkLeftovers(idle)
}

// newCluster fills the store, starts the servers, and waits until they know the publishers that
// most requests are for.
func newCluster(t *testing.T, binary string, e engine) *cluster {
	t.Helper()
	names := make([]string, e.publishers)
	for i := range names {
		names[i] = publisherName(i)
	}
	c := &cluster{T: t, engine: e, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}}
	for i := range numToggled {
		c.names = append(c.names, fmt.Sprintf("www.come-and-go-%d.example", i))
		c.toggled = append(c.toggled, newPublisher(c.names[i]))
	}
	begun := time.Now()
	e.fill(t, append(names, c.names...))
	t.Logf("%d publishers were written in %v", e.publishers+numToggled, time.Since(begun))
	for i := range numHot {
		c.hot = append(c.hot, newPublisher(names[i]))
	}
	for range numServers {
		c.nodes = append(c.nodes, startNode(t, binary, e))
	}
	for _, n := range c.nodes {
		for _, p := range append(c.hot, c.toggled...) {
			c.seenBy(n, p, patience, allowed)
		}
	}
	c.client.CloseIdleConnections()
	return c
}

// countGoroutines returns how many goroutines each idle server has.
func (c *cluster) countGoroutines() []int {
	idle := make([]int, numServers)
	for i, n := range c.nodes {
		time.Sleep(100 * time.Millisecond)
		idle[i] = n.stats(c.T).Goroutines
	}
	return idle
}

// The phases. Each returns a remark for the table.

func (c *cluster) comeAndGo() string {
	var in, out time.Duration
	n := 0
	for begun := time.Now(); time.Since(begun) < 4*time.Second; n++ {
		out = max(out, c.toggle(n%numToggled, false, c.nodes))
		in = max(in, c.toggle(n%numToggled, true, c.nodes))
	}
	return fmt.Sprintf("%d revoked, seen by all after %s at most; added again, %s", n, round(out), round(in))
}

func (c *cluster) stopDatabase() string {
	c.db.Stop()
	time.Sleep(time.Second)
	c.db.Start()
	return "works again after " + round(c.recovery(1))
}

func (c *cluster) killDatabase() string {
	c.db.Kill()
	time.Sleep(staleFor + timeout)
	for _, n := range c.nodes {
		for _, p := range c.hot {
			if o := c.call(n, p.origins[0]); o != unavailable {
				c.Errorf("%s: %d, when MaxStale is over", p.origins[0], o)
			}
		}
	}
	c.db.Start()
	return "works again after " + round(c.recovery(2))
}

func (c *cluster) cutAll() string {
	for _, n := range c.nodes {
		n.link.cut()
	}
	time.Sleep(staleFor / 2)
	for _, n := range c.nodes {
		n.link.restore()
	}
	return "works again after " + round(c.recovery(3))
}

func (c *cluster) cutOne() string {
	lost, p := c.nodes[0], c.toggled[0]
	c.seenBy(lost, p, patience, allowed)
	lost.link.cut()
	p.change()
	if err := c.store.revoke(c.Context(), c.names[0]); err != nil {
		c.Fatal(err)
	}
	others := time.Duration(0)
	for _, n := range c.nodes[1:] {
		others = max(others, c.seenBy(n, p, patience, denied))
	}
	took := others + c.seenBy(lost, p, patience, denied, unavailable)
	p.change()
	lost.link.restore()
	recovered := c.recovery(4)
	if c.toggle(0, true, c.nodes); c.Failed() {
		return ""
	}
	return fmt.Sprintf("seen by the others after %s, by that one after %s (MaxStale is %v); works again after %s", round(others), round(took),
		staleFor, round(recovered))
}

// checkLeftovers looks for goroutines and connections that load and failures left behind.
func (c *cluster) checkLeftovers(idle []int) {
	c.Helper()
	for i, n := range c.nodes {
		var last stats
		servertest.Until(c.T, fmt.Sprintf("server %d has no more goroutines than when it was new", i), patience, func() bool {
			http.DefaultClient.CloseIdleConnections()
			last = n.stats(c.T)
			return last.Goroutines <= idle[i]+2+c.goroutines
		})
		c.Logf("server %d: %d goroutines, %d when new; %d connections; %d bytes; %+v", i, last.Goroutines, idle[i], last.Connections, last.Heap,
			last.Source)
		if last.Connections > 16 {
			c.Errorf("server %d has %d connections", i, last.Connections)
		}
	}
	for _, n := range c.nodes {
		if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			c.Error(err)
		}
	}
	for _, n := range c.nodes {
		if err := n.cmd.Wait(); err != nil {
			c.Errorf("a server ended: %v", err)
		}
	}
	var left int
	servertest.Until(c.T, "the database has no clients", patience, func() bool {
		var err error
		left, err = c.store.clients(c.Context())
		return err == nil && left == 0
	})
}
