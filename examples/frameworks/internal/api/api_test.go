package api

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestAStreamOutlivesDeletedComments: deleted comments that were not sent yet are skipped,
// and later ones are sent.
func TestAStreamOutlivesDeletedComments(t *testing.T) {
	c := new(Comments)
	isWaiting := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.added != nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var sent strings.Builder
	flushes := 0
	c.Stream(ctx, &sent, func() error {
		switch flushes++; flushes {
		case 1:
			c.Add([]byte("deleted"))
			c.Add([]byte("deleted"))
			c.Clear()
			go func() {
				for !isWaiting() && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				c.Add([]byte("last"))
			}()
		case 2:
			cancel() // which ends the stream
		}
		return nil
	})
	if want := "comments as they come:\nlast\n"; sent.String() != want {
		t.Errorf("the stream has %q; want %q", sent.String(), want)
	}
}
