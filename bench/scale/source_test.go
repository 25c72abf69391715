package scale

import (
	"context"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ampcors/ampcors/internal/mwtest"
	"github.com/ampcors/ampcors/source"
)

// domain returns the publisher with a rank: 0 is asked for most.
func domain(rank int) string { return "www.site-" + strconv.Itoa(rank) + ".example" }

// newDomain returns a publisher that is not among those with a rank.
func newDomain(i int) string { return "www.site-new-" + strconv.Itoa(i) + ".example" }

func isPublisher(name string) bool { return strings.HasPrefix(name, "www.site-") }

// A zipf draws ranks below n as Zipf's law with exponent s has them. It inverts the law's
// continuous form, so the first few ranks are drawn less often: by a quarter for the first,
// if s is 1.
type zipf struct {
	random *rand.Rand
	s      float64
	n      int
}

func (z zipf) next() int {
	u, n := z.random.Float64(), float64(z.n)
	var x float64
	if z.s == 1 {
		x = math.Pow(n, u)
	} else {
		x = math.Pow((math.Pow(n, 1-z.s)-1)*u+1, 1/(1-z.s))
	}
	return min(int(x), z.n) - 1
}

// A model is a database in which each lookup takes delay, and a limited number of lookups
// runs at one time. The others wait.
type model struct {
	delay   time.Duration
	servers chan struct{}
	lookups atomic.Int64
}

func newModel(delay time.Duration, servers int) *model {
	return &model{delay: delay, servers: make(chan struct{}, servers)}
}

func (m *model) source() source.Database {
	return source.Database{PublisherByDomain: mwtest.Confirms(m.hasPublisher)}
}

func (m *model) hasPublisher(ctx context.Context, name string) (bool, error) {
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

// filtered returns the Database with an IsLikely that answers like a filter: publishers are likely, and so
// is about one in 256 other names. The tests of package filter check that a filter does this.
func (m *model) filtered() source.Database {
	s := m.source()
	s.IsLikely = func(name string) bool {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(name))
		return isPublisher(name) || hash.Sum32()>>16%256 == 0
	}
	return s
}
