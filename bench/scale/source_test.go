package scale

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// domains is how many publishers there are.
const domains = 10_000_000

// domain returns the publisher with a rank: 0 is asked for most.
func domain(rank int) string { return "www.site-" + strconv.Itoa(rank) + ".example" }

func isPublisher(name string) bool { return strings.HasPrefix(name, "www.site-") }

// A zipf draws ranks as Zipf's law with exponent s has them. It inverts the law's continuous
// form, so the first few ranks are drawn a little less often.
type zipf struct {
	random *rand.Rand
	s      float64
}

func (z zipf) rank() int {
	u := z.random.Float64()
	var x float64
	if z.s == 1 {
		x = math.Pow(domains, u)
	} else {
		x = math.Pow((math.Pow(domains, 1-z.s)-1)*u+1, 1/(1-z.s))
	}
	return min(int(x)-1, domains-1)
}

// A model is a database in which each lookup takes delay, and at most servers lookups run at
// one time. The others wait.
type model struct {
	delay   time.Duration
	servers chan struct{}
	lookups atomic.Int64
}

func newModel(delay time.Duration, servers int) *model {
	return &model{delay: delay, servers: make(chan struct{}, servers)}
}

func (m *model) HasPublisher(ctx context.Context, name string) (bool, error) {
	m.lookups.Add(1)
	select {
	case m.servers <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-m.servers }()
	time.Sleep(m.delay)
	return isPublisher(name), nil
}

func (*model) PublisherByPrefix(context.Context, string) (string, error) { return "", nil }

// Notify reports nothing, because nothing changes.
func (*model) Notify(func(...string)) func() { return func() {} }

func (*model) Publishers(context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for rank := range domains {
			if !yield(domain(rank), nil) {
				return
			}
		}
	}
}

// A guess is what a filter of the publishers says: yes for them, and for one in 256 of
// others. Package filter's own tests show that it does; here, it need not be built for each
// case.
type guess struct{ *model }

func (guess) IsLikely(name string) bool {
	if isPublisher(name) {
		return true
	}
	hash := uint32(2166136261)
	for i := range len(name) {
		hash = (hash ^ uint32(name[i])) * 16777619
	}
	return hash>>13%256 == 0
}

// A sure guess answers no by itself, as filter.Config.AnswerNo does.
type sure struct{ guess }

func (s sure) HasPublisher(ctx context.Context, name string) (bool, error) {
	if !s.IsLikely(name) {
		return false, nil
	}
	return s.model.HasPublisher(ctx, name)
}

// A tally counts how the requests of one kind ended.
type tally struct {
	mu                                     sync.Mutex
	requests, allowed, denied, unavailable int
	stale                                  int
	took                                   []time.Duration
}

func (t *tally) String() string {
	return fmt.Sprintf("%d requests: %d allowed, %d denied, %d unavailable, %d stale", t.requests, t.allowed, t.denied, t.unavailable, t.stale)
}
