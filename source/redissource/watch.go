package redissource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ampcors/ampcors/source/driver"
)

const (
	// pingEvery is how often Redis is asked whether it is there, and pingTimeout how long it may take to
	// answer. If Redis hangs for less than pingTimeout, no change is missed: the connection stays.
	pingEvery   = 250 * time.Millisecond
	pingTimeout = 500 * time.Millisecond
	// nudgeTimeout is more than the 5 seconds after which rueidis gives up a new connection.
	nudgeTimeout = 10 * time.Second

	// A first connection that cannot be made is tried again after minRetry, and then after up to maxRetry.
	minRetry = 50 * time.Millisecond
	maxRetry = time.Second
)

// A link is the client, and what does not answer.
type link struct {
	mu     sync.Mutex
	client rueidis.Client // nil until Redis could be reached, and after Close
	outage *outage        // nil while everything answers
	closed bool

	masters []string // addresses of a Cluster's masters that the last look found; at first those in Config

	owners   [numSlots]string // the master of each hash slot, as far as it was ever known
	hasMoved bool             // a slot has another master since the listeners were called for that
	movedAt  time.Time        // when they were

	nudging atomic.Bool
}

// An outage says why Redis, or a part of a Cluster, does not answer now. Lookups there fail at once: they would
// otherwise wait for the retries of rueidis.
type outage struct {
	err   error
	slots [][2]int // hash slots, from and to; nil for all
}

var errNoConnection = errors.New("there is no connection to this master")

var errClosed = errors.New("redissource: the Store is closed")

// open returns the client for a key, or for any if it is "". Right after New, it waits for the end of the first try
// to connect.
func (s *Store) open(ctx context.Context, key string) (rueidis.Client, error) {
	select {
	case <-s.reports.Known():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	switch o := s.link.outage; {
	case s.link.closed:
		return nil, errClosed
	case s.link.client == nil, key != "" && o.has(key):
		return nil, o.err
	}
	return s.link.client, nil
}

func (o *outage) has(key string) bool {
	if o == nil || o.slots == nil {
		return o != nil
	}
	at := hashSlot(key)
	for _, slots := range o.slots {
		if slots[0] <= at && at <= slots[1] {
			return true
		}
	}
	return false
}

// watch connects, and then asks Redis again and again whether it is there, until ctx is done.
func (s *Store) watch(ctx context.Context, option rueidis.ClientOption) {
	note := func(client rueidis.Client, o *outage) {
		s.link.mu.Lock()
		if s.link.outage = o; !s.link.closed {
			s.link.client = client
		}
		s.link.mu.Unlock()
		if o == nil {
			s.reports.Listens()
		} else {
			s.reports.Fails(o.err, kindOf(o.err), driver.UntilExpiry)
		}
	}
	var client rueidis.Client
	for retry := minRetry; client == nil; retry = min(2*retry, maxRetry) {
		var err error
		if client, err = connect(option, s.topology); err != nil {
			note(nil, &outage{err: err})
			if !sleep(ctx, retry) {
				return
			}
		}
	}
	defer client.Close()
	if ctx.Err() != nil {
		return
	}
	note(client, s.look(ctx, client))
	for sleep(ctx, pingEvery) {
		note(client, s.look(ctx, client))
	}
}

// kindOf returns what tells causes apart in the log: Redis's code, such as WRONGPASS, or the text, but
// one text for all lost connections, because a Cluster that is down has one error for each master.
func kindOf(err error) string {
	answer := (*rueidis.RedisError)(nil)
	network := net.Error(nil)
	switch {
	case errors.As(err, &answer):
		code, _, _ := strings.Cut(answer.Error(), " ")
		return code
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF),
		errors.Is(err, errNoConnection):
		return "connection"
	}
	return driver.Kind(err)
}

// sleep waits for d, and reports whether ctx is not done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// connect makes the first connection, and checks that Redis is what Config says.
func connect(option rueidis.ClientOption, topology Topology) (rueidis.Client, error) {
	client, err := rueidis.NewClient(option)
	switch {
	case errors.Is(err, rueidis.ErrNoCache):
		cause, _, _ := strings.Cut(err.Error(), "\n") // what follows advises to turn off what this package needs
		return nil, fmt.Errorf("redissource: Redis does not offer client-side caching; want Redis 6 or later, and a user "+
			"with the permission +client|tracking: %s", cause)
	case err != nil && topology == Cluster && strings.Contains(err.Error(), "cluster support disabled"):
		return nil, fmt.Errorf("redissource: Redis is not a Cluster, and Topology is %q; want %q: %w", topology, Standalone,
			err)
	case err != nil && topology == Sentinel && strings.Contains(strings.ToLower(err.Error()), "unknown command"):
		return nil, fmt.Errorf("redissource: Redis.InitAddress names no Sentinel; want the addresses of the Sentinels: %w",
			err)
	case err != nil:
		return nil, fmt.Errorf("redissource: connecting to Redis: %w", err)
	}
	if is := client.Mode() == rueidis.ClientModeCluster; is != (topology == Cluster) {
		client.Close()
		if is {
			return nil, fmt.Errorf("redissource: Redis is a Cluster, and Topology is %q; want %q", topology, Cluster)
		}
		return nil, fmt.Errorf("redissource: Redis is not a Cluster, and Topology is %q; want %q", topology, Standalone)
	}
	return client, nil
}

// look asks Redis, or each master of a Cluster, for a key, and whether it would report a change. The
// Store is listening only if all answer yes.
func (s *Store) look(ctx context.Context, client rueidis.Client) *outage {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if s.topology != Cluster {
		o := lookAt(ctx, client, "", s.publisher, nil)
		if o == nil {
			o = lookAtRole(ctx, client)
		}
		if o != nil {
			s.nudge(ctx, client, o) // a new connection may take longer than a look
		}
		return o
	}
	nodes := client.Nodes()
	masters, err := s.masters(ctx, nodes)
	if _, isAnswer := rueidis.IsRedisErr(errors.Unwrap(err)); isAnswer { // such as a missing permission: lookups may work
		return &outage{err: err, slots: [][2]int{}}
	}
	if err != nil {
		o := &outage{err: err}
		s.nudge(ctx, client, o)
		return o
	}
	if s.haveMoved(masters, time.Now()) {
		s.listeners.Call()
	}
	var mu sync.Mutex
	var found *outage
	var group sync.WaitGroup
	covered := 0
	for addr, slots := range masters {
		for _, some := range slots {
			covered += some[1] - some[0] + 1
		}
		node := nodes[addr]
		if node == nil { // rueidis learns of it only by a lookup, so lookups of these slots must not be rejected
			mu.Lock()
			found = found.with(&outage{err: fmt.Errorf("redissource: %s: %w", addr, errNoConnection), slots: [][2]int{}})
			mu.Unlock()
			s.nudge(ctx, client, &outage{slots: slots})
			continue
		}
		group.Go(func() {
			if o := lookAt(ctx, node, addr+": ", s.keyIn(slots), slots); o != nil {
				mu.Lock()
				defer mu.Unlock()
				found = found.with(o)
			}
		})
	}
	group.Wait()
	if found != nil {
		s.nudge(ctx, client, found)
	}
	// Redis answers lookups in the missing slots with an error, so they need not be rejected
	if found == nil && covered != numSlots {
		found = &outage{err: errors.New("redissource: some hash slots have no master; a replica may be taking over"),
			slots: [][2]int{}}
		s.nudge(ctx, client, &outage{}) // rueidis may know other nodes then
	}
	return found
}

// movedEvery is the least time between two calls of the listeners for slots that move: a Cluster moves many, one
// after another.
const movedEvery = 5 * time.Second

// haveMoved reports whether the listeners must be called because hash slots have other masters now. These may have
// fewer keys, and nobody reports that: a master that takes a slot without its keys, or a replica that is promoted
// behind.
func (s *Store) haveMoved(masters map[string][][2]int, now time.Time) bool {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	for addr, ranges := range masters {
		for _, slots := range ranges {
			for slot := max(slots[0], 0); slot <= min(slots[1], numSlots-1); slot++ {
				if owner := &s.link.owners[slot]; *owner != addr {
					s.link.hasMoved = s.link.hasMoved || *owner != ""
					*owner = addr
				}
			}
		}
	}
	if !s.link.hasMoved || now.Sub(s.link.movedAt) < movedEvery {
		return false
	}
	s.link.hasMoved, s.link.movedAt = false, now
	return true
}

// lookAt returns an outage of the slots if a node does not answer a lookup, or would not report a change. Redis
// answers with an error if it rejects the connection, such as for its password, and if it is now part of another
// deployment.
func lookAt(ctx context.Context, node rueidis.Client, name, key string, slots [][2]int) *outage {
	question := node.B().Ping().Build() // if there is no key of the node's slots
	if key != "" {
		question = node.B().Exists().Key(key).Build()
	}
	results, err := obey(ctx, func() ([]rueidis.RedisResult, error) {
		return node.DoMulti(ctx, question, node.B().ClientTrackinginfo().Build()), nil
	})
	if err == nil {
		err = results[0].Error()
	}
	if answer, isAnswer := rueidis.IsRedisErr(err); isAnswer && slots != nil && isOfWorkingNode(answer.Error(), key) {
		err = nil
	}
	if err != nil {
		return &outage{err: fmt.Errorf("redissource: %s%w", name, err), slots: slots}
	}
	info, err := results[1].AsMap()
	if _, isAnswer := rueidis.IsRedisErr(err); isAnswer {
		// Redis 6.0 does not know it, and a user may lack the permission; each connection begins with CLIENT
		// TRACKING, or fails
		return nil
	}
	if err != nil {
		return &outage{err: fmt.Errorf("redissource: %s%w", name, err), slots: slots}
	}
	flags := info["flags"]
	if names, _ := flags.AsStrSlice(); !slices.Contains(names, "bcast") {
		return &outage{err: fmt.Errorf("redissource: %sRedis does not report changes on this connection: its CLIENT "+
			"TRACKING is off", name), slots: [][2]int{}}
	}
	return nil
}

// lookAtRole returns an outage if Redis is a replica, which answers and reports as a master does, also while it is
// cut off from its master.
func lookAtRole(ctx context.Context, client rueidis.Client) *outage {
	role, err := obey(ctx, func() ([]rueidis.RedisMessage, error) {
		return client.Do(ctx, client.B().Role().Build()).ToArray()
	})
	if _, isAnswer := rueidis.IsRedisErr(err); isAnswer { // such as a missing permission: lookups work
		return &outage{err: fmt.Errorf("redissource: it is not known whether Redis is a replica; "+
			"want a user with the permission +role: %w", err), slots: [][2]int{}}
	}
	if err != nil {
		return &outage{err: fmt.Errorf("redissource: %w", err)}
	}
	name := ""
	if len(role) > 0 {
		name, _ = role[0].ToString()
	}
	if name != "master" {
		return &outage{err: fmt.Errorf("redissource: Redis is a replica (ROLE: %.20q), which may be cut off from its "+
			"master; "+
			"want the master's address, or Topology %q", name, Sentinel)}
	}
	return nil
}

// isOfWorkingNode reports whether a master of a Cluster that works may answer a question with this error: while
// slots move, or if the user lacks the permission for PING, which no lookup needs.
func isOfWorkingNode(answer, key string) bool {
	code, _, _ := strings.Cut(answer, " ")
	return slices.Contains([]string{"ASK", "MOVED", "TRYAGAIN"}, code) || key == "" && code == "NOPERM"
}

// with returns both outages as one, with the cause of the first.
func (o *outage) with(other *outage) *outage {
	if o == nil {
		return other
	}
	return &outage{err: o.err, slots: append(slices.Clone(o.slots), other.slots...)}
}

// keyIn returns a key in one of the slots, or "" if none of the keys that it tries is in one.
func (s *Store) keyIn(slots [][2]int) string {
	all, most := &outage{slots: slots}, numSlots
	switch {
	case slots != nil && len(slots) == 0:
		return ""
	case strings.Contains(s.publisher, "{"): // a hash tag: all keys are in one slot
		most = 1
	}
	for i := range most {
		if key := s.publisher + strconv.Itoa(i); all.has(key) {
			return key
		}
	}
	return ""
}

// nudge makes one lookup, in the background, at the node that does not answer. Other lookups there fail before they
// reach rueidis, and rueidis learns only from a failed lookup that a Cluster has other nodes now.
func (s *Store) nudge(ctx context.Context, client rueidis.Client, o *outage) {
	if !s.link.nudging.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.link.nudging.Store(false)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nudgeTimeout)
		defer cancel()
		if key := s.keyIn(o.slots); key != "" {
			_ = client.Do(ctx, client.B().Exists().Key(key).Build()).Error() // the next look shows whether it helped
		}
	}()
}

// masters returns the hash slots of each master of a Cluster, by address. It asks the masters that it knows of, and
// the other nodes only if none of these gives a master for each slot: a replica that is asked gets a connection,
// on which it reports each change once more.
func (s *Store) masters(ctx context.Context, nodes map[string]rueidis.Client) (map[string][][2]int, error) {
	s.link.mu.Lock()
	known := s.link.masters
	s.link.mu.Unlock()
	asked, others := make(map[string]rueidis.Client), make(map[string]rueidis.Client)
	for addr, node := range nodes {
		if slices.Contains(known, addr) {
			asked[addr] = node
		} else {
			others[addr] = node
		}
	}
	found, covered, err := slotsOf(ctx, asked)
	if covered != numSlots && len(others) > 0 {
		if more, covers, otherErr := slotsOf(ctx, others); covers > covered || found == nil && otherErr == nil {
			found, err = more, nil
		} else if found == nil {
			err = otherErr
		}
	}
	if found == nil {
		return nil, err
	}
	s.link.mu.Lock()
	s.link.masters = slices.Collect(maps.Keys(found))
	s.link.mu.Unlock()
	return found, nil
}

// slotsOf asks nodes, and returns the first complete answer, or the one with the most slots.
func slotsOf(ctx context.Context, nodes map[string]rueidis.Client) (masters map[string][][2]int, covered int,
	err error) {
	type result struct {
		masters map[string][][2]int
		covered int
		err     error
	}
	results := make(chan result, len(nodes))
	for addr, node := range nodes {
		go func() {
			ranges, err := obey(ctx, func() ([]rueidis.RedisMessage,
				error) {
				return node.Do(ctx, node.B().ClusterSlots().Build()).ToArray()
			})
			r := result{masters: make(map[string][][2]int), err: err}
			for _, one := range ranges {
				master, slots := slotRange(one, addr)
				r.masters[master] = append(r.masters[master], slots)
				r.covered += slots[1] - slots[0] + 1
			}
			results <- r
		}()
	}
	err = errors.New("redissource: the Cluster has no node")
	for range nodes {
		switch r := <-results; {
		case r.err != nil && masters == nil:
			err = fmt.Errorf("redissource: %w", r.err)
		case r.err == nil && (masters == nil || r.covered > covered):
			masters, covered, err = r.masters, r.covered, nil
		}
		if covered == numSlots {
			break
		}
	}
	return masters, covered, err
}

// slotRange returns the address of the master in a range of CLUSTER SLOTS, as the node at the address
// asked has returned it.
func slotRange(one rueidis.RedisMessage, asked string) (master string, slots [2]int) {
	parts, err := one.ToArray()
	if err != nil || len(parts) < 3 {
		return asked, [2]int{0, -1}
	}
	from, _ := parts[0].AsInt64()
	to, _ := parts[1].AsInt64()
	node, _ := parts[2].ToArray()
	host, port := "", int64(0)
	if len(node) > 1 {
		host, _ = node[0].ToString()
		port, _ = node[1].AsInt64()
	}
	if host == "" || host == "?" { // that of the connection, by the documentation of CLUSTER SLOTS
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10)), [2]int{int(from), int(to)}
}

// hashSlot returns the hash slot of a key: CRC-16/XMODEM of what is in the first braces, or of the whole key, as
// the specification of Redis Cluster says (Key distribution model, Hash tags).
func hashSlot(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	sum := uint16(0)
	for i := range len(key) {
		sum ^= uint16(key[i]) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
	}
	return int(sum) % numSlots
}
