package quota

import (
	"math"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
)

// Config is what a Manager is made of.
type Config struct {
	Windows         Windows // of all kinds but Mutation
	MutationWindows Windows
}

// Manager holds the limits in force and what everybody has used.
type Manager struct {
	cfg       Config
	rules     atomic.Pointer[Rules]
	addresses atomic.Pointer[addressRules]

	mu     sync.Mutex // guards the two below; taken when a connection's limits are looked up, not for its requests
	meters map[meterKey]*meter
	sweep  int // size of the table at which idle meters are looked for

	throttled [kinds]atomic.Int64
	muted     [kinds]atomic.Int64 // ms
	refused   atomic.Int64
	spent     [timeParts]atomic.Int64 // ns
}

// meterKey names a meter. Those of addresses have kind addressKind.
type meterKey struct {
	kind Kind
	owner
	address netip.Addr
}

const addressKind = kinds

// sweepLeast is the size of the table of meters below which nobody looks for idle ones.
const sweepLeast = 1024

// NewManager makes a Manager without limits.
func NewManager(cfg Config) *Manager {
	return &Manager{cfg: cfg, meters: map[meterKey]*meter{}, sweep: sweepLeast}
}

// Set puts limits in force in place of all that were before. What was used before counts on.
func (m *Manager) Set(all []Limits) {
	m.rules.Store(newRules(all))
	m.addresses.Store(newAddressRules(all))
}

// Rules are the limits on users and client ids; nil when there are none.
func (m *Manager) Rules() *Rules { return m.rules.Load() }

// Addresses tells whether any address has a limit.
func (m *Manager) Addresses() bool { return m.addresses.Load() != nil }

// account is what one kind of quota means for a client.
type account struct {
	meter *meter // nil: no limit
	limit float64
}

// Client is what a connection keeps of its limits. It belongs to one goroutine at a time.
type Client struct {
	manager  *Manager
	rules    *Rules
	user     string
	clientID string
	accounts [kinds]account
}

// Update brings c up to date: it does something only if the rules, the user or the client id is another than before, or a meter was
// forgotten. clientID is not kept.
func (m *Manager) Update(c *Client, rules *Rules, user, clientID string, now int64) {
	if c.rules == rules && c.user == user && c.clientID == clientID && !c.stale() {
		return
	}
	c.manager, c.rules, c.user = m, rules, user
	if c.clientID != clientID {
		c.clientID = strings.Clone(clientID)
	}
	for k := range c.accounts {
		c.accounts[k] = account{}
		if limit, pays, ok := rules.by[k].limit(c.user, c.clientID); ok {
			c.accounts[k] = account{m.meter(meterKey{kind: Kind(k), owner: pays}, now), limit}
		}
	}
}

// stale tells whether a meter was forgotten while the client was idle.
func (c *Client) stale() bool {
	for k := range c.accounts {
		if t := c.accounts[k].meter; t != nil && t.gone.Load() {
			return true
		}
	}
	return false
}

// Limited tells whether a limit of that kind applies.
func (c *Client) Limited(k Kind) bool { return c.accounts[k].meter != nil }

// meter finds or makes a meter.
func (m *Manager) meter(key meterKey, now int64) *meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.meters[key]; t != nil {
		return t
	}
	if len(m.meters) >= m.sweep {
		m.forgetIdle(now)
		m.sweep = max(sweepLeast, 2*len(m.meters))
	}
	t := &meter{used: now}
	m.meters[key] = t
	return t
}

// idleWindows is after how many times the span of the windows an unused meter is forgotten: its rate is 0 by then. Debts of mutations
// that last longer are kept.
const idleWindows = 2

// forgetIdle drops the meters that have nothing to remember. mu is held.
func (m *Manager) forgetIdle(now int64) {
	for key, t := range m.meters {
		w := m.windows(key.kind)
		t.mu.Lock()
		if now-t.used > idleWindows*int64(w.Samples)*w.SizeMs && (key.kind != Mutation || t.tokens >= 0) {
			t.gone.Store(true)
			delete(m.meters, key)
		}
		t.mu.Unlock()
	}
}

func (m *Manager) windows(k Kind) Windows {
	if k == Mutation {
		return m.cfg.MutationWindows
	}
	return m.cfg.Windows
}

// Charge counts bytes (Produce, Consume) and says for how many ms the client is to be muted; 0: not at all.
func (c *Client) Charge(k Kind, amount float64, now int64) (throttleMs int64) {
	a := &c.accounts[k]
	if a.meter == nil {
		return 0
	}
	w := c.manager.windows(k)
	a.meter.mu.Lock()
	a.meter.used = now
	a.meter.rate.record(w, amount, now)
	perSecond, windowMs := a.meter.rate.measure(w, now)
	a.meter.mu.Unlock()
	return overRate(perSecond, a.limit, windowMs)
}

// Burst is the most bytes that a client can use at once without being throttled for ever by the next request; math.MaxInt32 without a limit.
func (c *Client) Burst(k Kind) int {
	a := &c.accounts[k]
	if a.meter == nil {
		return math.MaxInt32
	}
	w := c.manager.windows(k)
	return int(min(a.limit*float64(w.Samples-1)*float64(w.SizeMs)/1000, math.MaxInt32))
}

// Return takes back what was charged for an answer that is not sent.
func (c *Client) Return(k Kind, amount float64, now int64) {
	if a := &c.accounts[k]; a.meter != nil {
		a.meter.mu.Lock()
		a.meter.rate.record(c.manager.windows(k), -amount, now)
		a.meter.mu.Unlock()
	}
}

// percentOfSecond is how many percent of a second of one processor a nanosecond is.
const percentOfSecond = 100.0 / 1e9

// TimePart says what time was spent on.
type TimePart uint8

// The parts of the time that is measured of clients with a limit of kind Request.
const (
	InHandler TimePart = iota // requests
	InNetwork                 // the bytes of requests and answers
	Exempt                    // requests that pay for none of it
	timeParts
)

var partNames = [timeParts]string{"handler", "network", "exempt"}

// Spend counts time, in ns, that somebody was busy with a client.
func (c *Client) Spend(part TimePart, nanos, now int64) {
	a := &c.accounts[Request]
	if a.meter != nil {
		c.manager.spent[part].Add(nanos)
	}
	if part == Exempt || a.meter == nil {
		return
	}
	a.meter.mu.Lock()
	a.meter.used = now
	a.meter.rate.record(c.manager.cfg.Windows, float64(nanos)*percentOfSecond, now)
	a.meter.mu.Unlock()
}

// Owed says for how many ms the client is to be muted for the time that was spent on it up to now: one window at most, as in Apache Kafka.
func (c *Client) Owed(now int64) (throttleMs int64) {
	a := &c.accounts[Request]
	if a.meter == nil {
		return 0
	}
	w := c.manager.cfg.Windows
	a.meter.mu.Lock()
	perSecond, windowMs := a.meter.rate.measure(w, now)
	a.meter.mu.Unlock()
	return min(overRate(perSecond, a.limit, windowMs), w.SizeMs)
}

// Mutate counts partitions that are made or removed. With strict it counts nothing and says false when the client is in debt. throttleMs
// is how long it will be in debt.
func (c *Client) Mutate(partitions int, strict bool, now int64) (ok bool, throttleMs int64) {
	a := &c.accounts[Mutation]
	if a.meter == nil {
		return true, 0
	}
	t := a.meter
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = now
	t.refill(c.manager.cfg.MutationWindows, a.limit, now)
	if strict && t.tokens < 0 {
		return false, debtMs(t.tokens, a.limit)
	}
	t.tokens -= float64(partitions)
	if strict || t.tokens >= 0 {
		return true, 0
	}
	return true, debtMs(t.tokens, a.limit)
}

// debtMs is when a bucket will be out of debt.
func debtMs(tokens, limit float64) int64 {
	return int64(min(math.Round(-tokens/limit*1000), math.MaxInt32))
}

// Connect counts a new connection from an address; above 0 it is one too many, to be closed after so many ms. Those count for nothing.
func (m *Manager) Connect(a netip.Addr, now int64) (delayMs int64) {
	rules := m.addresses.Load()
	if rules == nil {
		return 0
	}
	limit, ok := rules.limit(a)
	if !ok {
		return 0
	}
	t := m.meter(meterKey{kind: addressKind, address: a}, now)
	w := m.cfg.Windows
	t.mu.Lock()
	t.used = now
	t.rate.record(w, 1, now)
	perSecond, windowMs := t.rate.measure(w, now)
	delayMs = min(overRate(perSecond, limit, windowMs), w.SizeMs)
	if delayMs > 0 {
		t.rate.record(w, -1, now)
	}
	t.mu.Unlock()
	if delayMs > 0 {
		m.refused.Add(1)
	}
	return delayMs
}

// Throttled counts a request that was throttled, for metrics.
func (m *Manager) Throttled(k Kind, ms int64) {
	m.throttled[k].Add(1)
	m.muted[k].Add(ms)
}

// Usage is what happened to one kind since the start.
type Usage struct {
	Key       string
	Throttled int64 // requests
	MutedMs   int64 // that their connections were to be left unread
}

// Spent is the time of one part since the start.
type Spent struct {
	Part  string
	Nanos int64
}

// Stats are counters since the start, for metrics.
type Stats struct {
	Kinds   [kinds]Usage
	Refused int64 // connections over connection_creation_rate
	Spent   [timeParts]Spent
	Meters  int
}

// Stats reads the counters.
func (m *Manager) Stats() (s Stats) {
	for k := range s.Kinds {
		s.Kinds[k] = Usage{kindKeys[k], m.throttled[k].Load(), m.muted[k].Load()}
	}
	for p := range s.Spent {
		s.Spent[p] = Spent{partNames[p], m.spent[p].Load()}
	}
	s.Refused = m.refused.Load()
	m.mu.Lock()
	s.Meters = len(m.meters)
	m.mu.Unlock()
	return s
}
