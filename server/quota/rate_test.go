package quota

import (
	"fmt"
	"net/netip"
	"testing"
)

var apacheWindows = Windows{Samples: 11, SizeMs: 1000}

// start is a time of day: meters must not mistake their zero for a time.
const start = 1_700_000_000_000

// client makes a manager with limits, and a client of it.
func client(t *testing.T, user, clientID string, all ...Limits) (*Manager, *Client) {
	t.Helper()
	m := NewManager(Config{Windows: apacheWindows, MutationWindows: apacheWindows})
	m.Set(all)
	c := new(Client)
	if rules := m.Rules(); rules != nil {
		m.Update(c, rules, user, clientID, start)
	}
	return m, c
}

func named(s string) Name { return Name{Given: true, Text: s} }

var byDefault = Name{Given: true, Default: true}

// TestThrottleTimes: Apache Kafka's own numbers. A request of 50,125 bytes at 4,000 B/s was throttled for 2,531 ms, at 1 B/s one of 50,130
// for 50,120,000: its rate is taken over ten windows at least.
func TestThrottleTimes(t *testing.T) {
	for _, test := range []struct{ limit, bytes, want float64 }{
		{4000, 50125, 2531}, {1, 50130, 50120000}, {4000, 40000, 0}, {4000, 40001, 0}, {4000, 40004, 1}, {1, 1e18, 2147483647},
	} {
		_, c := client(t, "u", "c", Limits{Entity{ClientID: named("c")}, map[string]float64{ProducerByteRate: test.limit}})
		if got := c.Charge(Produce, test.bytes, start); got != int64(test.want) {
			t.Errorf("%v bytes at %v B/s: throttled for %d ms, want %v", test.bytes, test.limit, got, test.want)
		}
	}
}

// TestWindows: what is older than all windows counts no more, and the span of the average grows from ten windows to eleven.
func TestWindows(t *testing.T) {
	_, c := client(t, "u", "c", Limits{Entity{User: named("u")}, map[string]float64{ConsumerByteRate: 1000}})
	for _, step := range []struct{ at, bytes, want int64 }{
		{0, 20_000, 10_000},    // 20,000 B in 10 s
		{999, 1_000, 10_001},   // 21,000 B in 10.999 s
		{10_500, 0, 10_500},    // 21,000 B in 10.5 s
		{10_999, 0, 10_001},    // in 10.999 s
		{11_000, 1_000, 0},     // the first sample is too old; the other began at 10.5 s
		{11_001, 9_000, 0},     // 10,000 B in 10.501 s
		{11_002, 2_000, 1_498}, // 12,000 B in 10.502 s
		{40_000, 10_000, 0},    // all are old
		{40_000, 1_000, 1_000}, // 11,000 B in 10 s
		{40_000, -1_000, 0},    // taken back
	} {
		if got := c.Charge(Consume, float64(step.bytes), start+step.at); got != step.want {
			t.Errorf("at %d ms, %d bytes: throttled for %d ms, want %d", step.at, step.bytes, got, step.want)
		}
	}
}

// TestRequestTime: percent of a processor, and a throttle of one window at most.
func TestRequestTime(t *testing.T) {
	_, c := client(t, "u", "c", Limits{Entity{User: byDefault}, map[string]float64{RequestPercentage: 10}})
	c.Spend(InHandler, 1e9, start) // a second: 100 % in 10 s are 10 % a second
	if got := c.Owed(start); got != 0 {
		t.Errorf("at the limit: %d ms", got)
	}
	c.Spend(InHandler, 5e6, start)
	if got := c.Owed(start); got != 50 {
		t.Errorf("100.5 %% in 10 s: %d ms, want 50", got)
	}
	c.Spend(InHandler, 1e10, start)
	if got := c.Owed(start); got != 1000 {
		t.Errorf("far over: %d ms, want one window", got)
	}
}

// TestMutations: a bucket of eleven windows, which may be overdrawn once; Apache's own numbers of the transcript client-quotas-mutations.
func TestMutations(t *testing.T) {
	_, c := client(t, "u", "c", Limits{Entity{ClientID: named("c")}, map[string]float64{ControllerMutationRate: 1}})
	for i, step := range []struct {
		at         int64
		partitions int
		strict, ok bool
		throttle   int64
	}{
		{0, 20, true, true, 0},      // 11 - 20: in debt from now on
		{69, 1, true, false, 8931},  // refused, and not counted
		{492, 1, false, true, 9508}, // old versions are served, and throttled
		{10_000, 5, true, true, 0},  // 0 and none in debt: -10+10 = 0
		{10_000, 1, true, false, 5000},
		{100_000, 11, true, true, 0}, // full again, with eleven
		{100_000, 1, true, true, 0},
		{100_000, 1, true, false, 1000},
	} {
		ok, throttle := c.Mutate(step.partitions, step.strict, start+step.at)
		if ok != step.ok || throttle != step.throttle {
			t.Errorf("step %d: %v, throttled for %d ms; want %v, %d", i, ok, throttle, step.ok, step.throttle)
		}
	}
}

// TestPrecedence: of all eight levels the most particular that is set counts, for each key by itself (KIP-55), and says who shares.
func TestPrecedence(t *testing.T) {
	levels := []Entity{
		{User: named("u"), ClientID: named("c")}, {User: named("u"), ClientID: byDefault}, {User: named("u")},
		{User: byDefault, ClientID: named("c")}, {User: byDefault, ClientID: byDefault}, {User: byDefault},
		{ClientID: named("c")}, {ClientID: byDefault},
	}
	pays := []owner{{"u", "c"}, {"u", "c"}, {"u", ""}, {"u", "c"}, {"u", "c"}, {"u", ""}, {"", "c"}, {"", "c"}}
	for from := range levels {
		var all []Limits
		for i := len(levels) - 1; i >= from; i-- {
			all = append(all, Limits{levels[i], map[string]float64{ProducerByteRate: float64(i + 1)}})
		}
		all = append(all, Limits{levels[0], map[string]float64{ConsumerByteRate: 99}}, // another key
			Limits{Entity{User: named("other"), ClientID: named("c")}, map[string]float64{ProducerByteRate: 77}},
			Limits{Entity{User: named("other")}, map[string]float64{ProducerByteRate: 78}},
			Limits{Entity{ClientID: named("d")}, map[string]float64{ProducerByteRate: 79}})
		limit, who, ok := newRules(all).by[Produce].limit("u", "c")
		if !ok || limit != float64(from+1) || who != pays[from] {
			t.Errorf("from level %d on: limit %v of %v, found %v; want %d of %v", from, limit, who, ok, from+1, pays[from])
		}
	}
	if _, _, ok := newRules([]Limits{{levels[0], map[string]float64{ProducerByteRate: 1}}}).by[Produce].limit("u", "other"); ok {
		t.Error("a client without a limit has one")
	}
}

// TestNoRules: addresses have rules of their own, and without any for users and client ids there is nothing to look at.
func TestNoRules(t *testing.T) {
	m, _ := client(t, "u", "c", Limits{Entity{IP: byDefault}, map[string]float64{ConnectionCreationRate: 1}})
	if m.Rules() != nil {
		t.Error("rules for users without any")
	}
	m.Set([]Limits{{Entity{User: named("u")}, map[string]float64{"no such key": 1}}})
	if m.Rules() != nil {
		t.Error("rules of an unknown key")
	}
}

// TestSharing: two connections of one user share what he may, and a change of the limit keeps what he used.
func TestSharing(t *testing.T) {
	user := Entity{User: named("u")}
	m, a := client(t, "u", "a", Limits{user, map[string]float64{ProducerByteRate: 1000}})
	var b Client
	m.Update(&b, m.Rules(), "u", "b", start)
	if got := a.Charge(Produce, 9_000, start); got != 0 {
		t.Errorf("9,000 bytes: throttled for %d ms", got)
	}
	if got := b.Charge(Produce, 2_000, start); got != 1_000 {
		t.Errorf("11,000 bytes of two connections: throttled for %d ms, want 1000", got)
	}
	m.Set([]Limits{{user, map[string]float64{ProducerByteRate: 1100}}})
	m.Update(&b, m.Rules(), "u", "b", start)
	if got := b.Charge(Produce, 0, start); got != 0 {
		t.Errorf("after the limit was raised: throttled for %d ms", got)
	}
}

// TestConnections: those over the rate are to be closed after a wait, and count for nothing.
func TestConnections(t *testing.T) {
	one, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	m, _ := client(t, "", "",
		Limits{Entity{IP: named("10.0.0.1")}, map[string]float64{ConnectionCreationRate: 2}},
		Limits{Entity{IP: byDefault}, map[string]float64{ConnectionCreationRate: 100}})
	for i := range 20 {
		if got := m.Connect(one, start); got != 0 {
			t.Fatalf("connection %d: delayed by %d ms", i, got)
		}
	}
	for range 2 {
		if got := m.Connect(one, start); got != 500 {
			t.Errorf("one too many: delayed by %d ms, want 500", got)
		}
	}
	if got := m.Connect(other, start); got != 0 || m.Stats().Refused != 2 {
		t.Errorf("another address: %d ms; %d refused", got, m.Stats().Refused)
	}
}

// TestMetersAreForgotten: of many clients that are gone few meters stay, debts of mutations and whoever is active among them; a connection
// that comes back gets a new one.
func TestMetersAreForgotten(t *testing.T) {
	values := map[string]float64{ProducerByteRate: 1000, ControllerMutationRate: 0.001}
	m, c := client(t, "u", "kept", Limits{Entity{User: named("u"), ClientID: byDefault}, values})
	c.Mutate(1000, true, start)
	now := int64(start)
	for i := range 10 * sweepLeast {
		now += 100
		var other Client
		m.Update(&other, m.Rules(), "u", fmt.Sprint("c", i), now)
		other.Charge(Produce, 1, now)
	}
	if n := m.Stats().Meters; n > 3*sweepLeast {
		t.Errorf("%d meters are kept", n)
	}
	if !c.stale() {
		t.Error("a meter that was forgotten is not missed")
	}
	m.Update(c, m.Rules(), "u", "kept", now)
	if ok, _ := c.Mutate(1, true, now); ok || c.stale() {
		t.Error("a debt was forgotten")
	}
}

// TestAllocations: charging allocates nothing.
func TestAllocations(t *testing.T) {
	m, c := client(t, "u", "c", Limits{Entity{User: byDefault}, map[string]float64{ProducerByteRate: 1000, RequestPercentage: 1}})
	now := int64(start)
	if n := testing.AllocsPerRun(2000, func() {
		now += 100
		m.Update(c, m.Rules(), "u", "c", now)
		c.Charge(Produce, 10, now)
		c.Spend(InHandler, 10, now)
		c.Owed(now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
