package lookup

import (
	"container/list"
	"sync"
	"time"
)

// A class says how urgent a lookup is. Honest callers must not wait behind invented names.
type class int

const (
	known     class = iota // the name is remembered, though expired
	likely                 // the source says that the name likely exists
	returning              // it was rejected because of load a moment ago, and is asked for again
	unknown
	numClasses

	absent class = -1 // the source says that there is no such name, so there is no lookup
)

const (
	// maxWaiting is how many lookups of each class can wait. It bounds the memory of their
	// requests in a flood.
	maxWaiting = 4096

	// One of rotateEvery slots that become free goes to the classes of names that are not
	// remembered, in turn, so that no class waits forever.
	rotateEvery = 16
)

// A queue bounds the lookups that run at one time in one shard of the source. Those that do
// not find a free slot wait, the most urgent class first. Lookups for names that are not
// remembered share three quarters of the slots, so that the others find a slot at once.
type queue struct {
	mu         sync.Mutex
	limit      limit
	running    int
	notKnown   int // the part of running for names that are not remembered
	waiting    [numClasses]list.List
	numGranted int
}

func newQueue(maxConcurrent int) *queue { return &queue{limit: newLimit(maxConcurrent)} }

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
	if !q.hasRoom(known) {
		return false
	}
	q.take(known)
	return true
}

// leave frees a slot in which no lookup was made.
func (q *queue) leave(c class) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free(c)
}

// finished frees the slot of a lookup that ended now.
func (q *queue) finished(c class, now, took time.Duration, failed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit.finished(now, took, failed)
	q.free(c)
}

func (q *queue) hasRoom(c class) bool {
	slots := q.limit.now()
	return q.running < slots && (c == known || q.notKnown < max(1, slots*3/4))
}

func (q *queue) take(c class) {
	q.running++
	if c != known {
		q.notKnown++
	}
	if !q.hasRoom(c) {
		q.limit.isFull = true
	}
}

func (q *queue) free(c class) {
	q.running--
	if c != known {
		q.notKnown--
	}
	for q.grant() {
	}
}

// grant gives a free slot to the next lookup that waits, and reports whether it could.
func (q *queue) grant() bool {
	begin := known
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

// state returns how many lookups may run at one time now, and how many wait.
func (q *queue) state() (slots, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.waiting {
		waiting += q.waiting[c].Len()
	}
	return q.limit.now(), waiting
}
