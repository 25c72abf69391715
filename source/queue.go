package source

import (
	"container/list"
	"sync"
	"time"
)

// A class is the urgency of a lookup. Honest callers must not wait behind invented names.
type class int

const (
	remembered class = iota // the publisher is remembered, though expired
	likely                  // the database says that there likely is such a publisher
	returning               // it was rejected because of load a moment ago, and is asked for again
	unknown
	numClasses
)

const (
	// maxWaiting is how many lookups of each class can wait. It bounds the memory of their
	// requests in a flood.
	maxWaiting = 4096

	// One of rotateEvery slots that become free goes to the classes of names that are not
	// remembered, in turn, so that no class waits forever.
	rotateEvery = 16
)

// A queue bounds the lookups that run at one time in one shard of the database. Those that do
// not find a free slot wait, the most urgent class first. Lookups for names that are not
// remembered share three quarters of the slots, so that the others find a slot at once.
type queue struct {
	mu         sync.Mutex
	slots      int // how many can run at one time
	running    int
	unfamiliar int // the part of running for names that are not remembered
	waiting    [numClasses]list.List
	numGranted int
}

// wait waits for a slot, and reports whether one became free in time. If maxWaiting lookups
// of the class already wait, it reports false at once.
func (q *queue) wait(c class, timeout time.Duration) bool {
	q.mu.Lock()
	if q.hasRoom(c) {
		q.take(c)
		q.mu.Unlock()
		return true
	}
	if q.waiting[c].Len() >= maxWaiting {
		q.mu.Unlock()
		return false
	}
	granted := make(chan struct{})
	element := q.waiting[c].PushBack(granted)
	q.mu.Unlock()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-granted:
		return true
	case <-timer.C:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-granted: // in the last moment
		return true
	default:
		q.waiting[c].Remove(element)
		return false
	}
}

// try takes a slot for a remembered name if one is free now.
func (q *queue) try() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hasRoom(remembered) {
		return false
	}
	q.take(remembered)
	return true
}

// leave frees a slot.
func (q *queue) leave(c class) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if c != remembered {
		q.unfamiliar--
	}
	for q.grant() {
	}
}

func (q *queue) hasRoom(c class) bool {
	return q.running < q.slots && (c == remembered || q.unfamiliar < max(1, q.slots*3/4))
}

func (q *queue) take(c class) {
	q.running++
	if c != remembered {
		q.unfamiliar++
	}
}

// grant gives a free slot to the next lookup that waits, and reports whether it could.
func (q *queue) grant() bool {
	begin := remembered
	if q.numGranted%rotateEvery == rotateEvery-1 {
		begin = likely + class(q.numGranted/rotateEvery)%(numClasses-likely)
	}
	for i := range numClasses {
		c := (begin + i) % numClasses
		first := q.waiting[c].Front()
		if first == nil || !q.hasRoom(c) {
			continue
		}
		q.waiting[c].Remove(first)
		q.take(c)
		q.numGranted++
		close(first.Value.(chan struct{}))
		return true
	}
	return false
}

func (q *queue) numWaiting() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.waiting {
		n += q.waiting[c].Len()
	}
	return n
}
