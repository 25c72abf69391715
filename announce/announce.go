// Package announce says whether and when another try may succeed, for its subpackages and for programs that send
// requests themselves.
package announce

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Retryable reports whether the status of an answer says that the same request may succeed later: 408, 421, 425, 429
// and each from 500 (RFC 9110 section 15, RFC 8470 section 5.2, RFC 6585 section 4).
func Retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// A StatusError is an answer with another status than 200.
type StatusError struct {
	Status  int
	Message string // what the API of ampurl says; "" for all others
	// how long the server asks to wait, at most 24 hours; 0 if it does not say; always 0 in package ampurl
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the answer is %d; want 200", e.Status)
	if e.Message != "" {
		text = fmt.Sprintf("the answer is %d: %.300s", e.Status, e.Message)
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(", and the server wants no request for %v", e.RetryAfter)
	}
	return text
}

// Retryable reports whether the same request may succeed later.
func (e *StatusError) Retryable() bool { return Retryable(e.Status) }

// maxRetryAfter bounds a Retry-After. Longer ones are garbage, such as seconds since 1970.
const maxRetryAfter = 24 * time.Hour

// RetryAfter returns how long an answer asks to wait: its Retry-After, in seconds or as a date (RFC 9110 section
// 10.2.3), at most a day; or 0.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		wait = time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
