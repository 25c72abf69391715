package source

import "time"

// logEvery is the least time between two outages that are logged.
const logEvery = time.Minute

// An outage is a time in which lookups fail, of any kind and in any shard. Source.mu guards it.
type outage struct {
	isOn, isLogged bool
	began          time.Duration
	logged         time.Duration // when one was logged last; 0 if none was
}

// An outageReport says what is to be logged.
type outageReport int

const (
	outageBegins outageReport = iota + 1
	outageEnds
)

func (o *outage) begin(now time.Duration) (report outageReport) {
	if o.isOn {
		return 0
	}
	o.isOn, o.began, o.isLogged = true, now, o.logged == 0 || now-o.logged >= logEvery
	if !o.isLogged {
		return 0
	}
	o.logged = now
	return outageBegins
}

func (o *outage) end(now time.Duration) (report outageReport, lasted time.Duration) {
	if o.isOn = false; !o.isLogged {
		return 0, 0
	}
	return outageEnds, now - o.began
}

// anyFails reports whether lookups of any kind fail. s.mu is held.
func (s *Source) anyFails() bool {
	now := s.now()
	for i := range s.shards {
		shard := &s.shards[i]
		if shard.publishers.fails(now) || shard.unknownDomains.fails(now) || shard.unknownPrefixes.fails(now) {
			return true
		}
	}
	return false
}
