// Package api is what the programs of this module have in common: readers' comments, and
// a protocol to upgrade to.
package api

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/ampcors/ampcors"
)

// Config is what a publisher would keep in a file.
func Config() ampcors.Config {
	return ampcors.Config{
		Publishers:   []string{"www.example.com", "news.example"},
		Credentialed: true,
		Methods:      []string{"DELETE"},
	}
}

// Comments holds the comments of readers.
type Comments struct {
	mu      sync.Mutex
	list    []string
	deleted int           // how many were deleted; they came before those in the list
	added   chan struct{} // closed when there is one more
}

// Add stores a copy of text, as a framework may reuse its memory.
func (c *Comments) Add(text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, string(text))
	if c.added != nil {
		close(c.added)
		c.added = nil
	}
}

// List returns all comments.
func (c *Comments) List() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.list...)
}

// Clear deletes all comments.
func (c *Comments) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted += len(c.list)
	c.list = nil
}

// Stream writes a line for each comment from now on, and flushes after each, until ctx
// is done or a write fails.
func (c *Comments) Stream(ctx context.Context, w io.Writer, flush func() error) {
	c.mu.Lock()
	next := c.deleted + len(c.list)
	c.mu.Unlock()
	line := "comments as they come:"
	for {
		if _, err := fmt.Fprintln(w, line); err != nil || flush() != nil {
			return
		}
		c.mu.Lock()
		for max(next, c.deleted) >= c.deleted+len(c.list) {
			if c.added == nil {
				c.added = make(chan struct{})
			}
			added := c.added
			c.mu.Unlock()
			select {
			case <-added:
			case <-ctx.Done():
				return
			}
			c.mu.Lock()
		}
		next = max(next, c.deleted) // skip deleted comments
		line = c.list[next-c.deleted]
		next++
		c.mu.Unlock()
	}
}

// Echo takes over a connection that a handler has hijacked, answers the upgrade to the
// protocol "echo", and sends back what it gets.
func Echo(conn io.ReadWriteCloser, buffered io.Reader) {
	defer conn.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		return
	}
	_, _ = io.Copy(conn, buffered) // until the client is gone
}
