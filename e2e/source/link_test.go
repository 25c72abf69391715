package e2e

import (
	"context"
	"net"
	"sync"
	"testing"
)

// A link passes TCP connections on to the database, until it is cut.
type link struct {
	addr string

	mu   sync.Mutex
	open chan struct{} // closed while data passes
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{addr: listener.Addr().String(), open: make(chan struct{})}
	close(l.open)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go l.pass(ctx, near, to)
		}
	}()
	return l
}

func (l *link) wait(ctx context.Context) {
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
	}
}

// cut holds back everything that either side sends. The connections stay open.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.open)
}

func (l *link) pass(ctx context.Context, near net.Conn, to string) {
	defer near.Close()
	l.wait(ctx)
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	stop := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
	defer stop()
	var group sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		group.Go(func() {
			buf := make([]byte, 32<<10)
			for {
				n, err := way[0].Read(buf)
				l.wait(ctx)
				if _, err2 := way[1].Write(buf[:n]); err != nil || err2 != nil {
					near.Close()
					far.Close()
					return
				}
			}
		})
	}
	group.Wait()
}
