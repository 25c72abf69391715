package sqlsource

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A mortal is a database whose connections can all be closed by its server. A query on a
// closed one fails with an error from which database/sql does not learn that the connection
// is dead, as with some drivers.
type mortal struct {
	fake
	generation atomic.Int32
	queries    atomic.Int32
	dialed     atomic.Int32
	isDown     atomic.Bool
	pause      time.Duration // that a query takes
	running    atomic.Int32
	most       atomic.Int32 // of running
}

type mortalConn struct {
	*fake
	db         *mortal
	generation int32
}

func (m *mortal) Connect(context.Context) (driver.Conn, error) {
	if m.isDown.Load() {
		return nil, errors.New("connection refused")
	}
	m.dialed.Add(1)
	return &mortalConn{&m.fake, m, m.generation.Load()}, nil
}

func (c *mortalConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.db.queries.Add(1)
	c.db.most.Store(max(c.db.most.Load(), c.db.running.Add(1)))
	defer c.db.running.Add(-1)
	time.Sleep(c.db.pause)
	if c.generation != c.db.generation.Load() {
		return nil, errors.New("terminated by an administrator")
	}
	return &fakeRows{left: slices.Clone(c.rows)}, c.err
}

func (c *mortalConn) Ping(context.Context) error {
	if c.generation != c.db.generation.Load() {
		return driver.ErrBadConn
	}
	return nil
}

func TestALookupOnADeadConnectionIsRetriedOnALivingOne(t *testing.T) {
	t.Parallel()
	const pool = 8
	m := &mortal{fake: fake{rows: []string{"a.example"}}}
	db := sql.OpenDB(m)
	defer db.Close()
	db.SetMaxIdleConns(pool)
	var conns []*sql.Conn
	for range pool {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Close() // to the pool
	}
	s, err := New(db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	m.generation.Add(1)
	if got, err := s.publisherByDomain(t.Context(), "a.example"); got != "a.example" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if m.queries.Load() != 2 || m.dialed.Load() != pool+1 {
		t.Errorf("%d queries, %d connections were made", m.queries.Load(), m.dialed.Load()-pool)
	}

	// It is retried maxRetries times, and not after a cancel or while nobody answers.
	m.err = errors.New("no such table")
	m.queries.Store(0)
	if _, err := s.publisherByDomain(t.Context(), "a.example"); !errors.Is(err, m.err) || m.queries.Load() != 1+maxRetries {
		t.Errorf("%v after %d queries", err, m.queries.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.queries.Store(0)
	if _, err := s.publisherByDomain(ctx, "a.example"); !errors.Is(err, context.Canceled) || m.queries.Load() > 1 {
		t.Errorf("%v after %d queries", err, m.queries.Load())
	}
	m.err = nil
	m.queries.Store(0)
	m.isDown.Store(true)
	m.generation.Add(1)
	if got, err := s.publisherByDomain(t.Context(), "a.example"); got != "" || err == nil ||
		!strings.Contains(err.Error(), "terminated by an administrator") || m.queries.Load() != 1 {
		t.Errorf("%q, %v after %d queries", got, err, m.queries.Load())
	}
}

func TestPublishersListsAll(t *testing.T) {
	t.Parallel()
	list := func(s *Table) (names []string, err error) {
		for name, err := range s.publishers(t.Context()) {
			if err != nil {
				return names, err
			}
			names = append(names, name)
		}
		return names, nil
	}
	f, s := newFake(t, Config{Table: "sites", DomainColumn: "host", Condition: "active"})
	f.rows = []string{"a.example", "b.example", "c.example"}
	if names, err := list(s); err != nil || !slices.Equal(names, f.rows) {
		t.Errorf("%q, %v", names, err)
	}
	if want := "SELECT host FROM sites WHERE host IS NOT NULL AND (active\n)"; f.statements[0] != want {
		t.Errorf("%q", f.statements)
	}
	for range s.publishers(t.Context()) {
		break // a caller may stop
	}
	down := errors.New("down")
	f.rowsErr = down
	if names, err := list(s); !errors.Is(err, down) || len(names) != 3 {
		t.Errorf("%q, %v", names, err)
	}
	f.rows, f.rowsErr = []string{"NULL"}, nil
	if names, err := list(s); err == nil {
		t.Errorf("%q", names)
	}
	f.err = down
	if names, err := list(s); !errors.Is(err, down) || len(names) != 0 {
		t.Errorf("%q, %v", names, err)
	}
}

// A pool without a limit is not flooded with lookups.
func TestLookupsAreLimitedIfThePoolIsNot(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &mortal{fake: fake{rows: []string{"a.example"}}, pause: time.Second}
				db := sql.OpenDB(m)
				defer db.Close()
				db.SetMaxOpenConns(limit)
				s, err := New(db, Config{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
				defer cancel()
				var group sync.WaitGroup
				var failed atomic.Int32
				for range 100 {
					group.Go(func() {
						if _, err := s.publisherByDomain(ctx, "a.example"); errors.Is(err, context.DeadlineExceeded) {
							failed.Add(1)
						}
					})
				}
				group.Wait()
				want := int32(limit)
				if limit == 0 {
					want = defaultConns
				}
				if m.most.Load() != want || failed.Load() == 0 {
					t.Errorf("%d lookups at one time; want %d; %d got no connection in time", m.most.Load(), want, failed.Load())
				}
			})
		})
	}
}
