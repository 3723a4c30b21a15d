package transcripts

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const defaultPatience = 20 * time.Second

// Broker is what the scripts are played against. The zero value of every field but Plain is usable.
type Broker struct {
	Plain     string // address of the plaintext listener
	SASL      string // SASL_PLAINTEXT listener; "" skips scenarios that need it
	SASLShort string // SASL_PLAINTEXT listener with connections.max.reauth.ms=2500; likewise

	// Restart stops the broker and starts it on the same data and ports, and returns when it is up.
	Restart func() error
	// Settle is waited for after a restart: Apache's coordinators may move once more.
	Settle time.Duration
	// Lacks are needs of scenarios that this broker does not meet ("authorizer").
	Lacks []string
	// Patience bounds the wait for one answer and for an "until" to come true. Default 20 s.
	Patience time.Duration

	node int // the broker's id
}

// Missing names what sc needs and the broker does not have; "" when it can be played.
func (b *Broker) Missing(sc *Scenario) string {
	needs := append([]string(nil), sc.Needs...)
	for _, c := range sc.Connections {
		if c.Listener != "" && c.Listener != "plain" {
			needs = append(needs, c.Listener)
		}
	}
	if sc.Restarts() {
		needs = append(needs, "restart")
	}
	for _, n := range needs {
		if n == "sasl" && b.SASL == "" || n == "saslshort" && b.SASLShort == "" || n == "restart" && b.Restart == nil ||
			slices.Contains(b.Lacks, n) {
			return n
		}
	}
	return ""
}

func (b *Broker) patience() time.Duration {
	if b.Patience > 0 {
		return b.Patience
	}
	return defaultPatience
}

// Connect learns the broker's id and waits until those coordinators serve that it has, so that scripts need no retries
// for that. It must have succeeded once before Play.
func (b *Broker) Connect() error {
	s := newSession(&Scenario{}, b, nil)
	defer s.close()
	r, err := s.ask(3, 1, `{"topics":[]}`)
	if err != nil {
		return err
	}
	b.node = int(toInt(get(r, "brokers[0].nodeId"), "brokers[0].nodeId"))
	s.vars["node"] = num(int64(b.node))
	return b.warmUp(s)
}

// warmUp asks for enough names to meet every partition of the internal topics.
func (b *Broker) warmUp(s *session) error {
	const heartbeat, endTxn = "12", "26"
	served := map[string]bool{}
	r, err := s.ask(18, 0, `{}`)
	if err != nil {
		return err
	}
	for _, k := range r.V["apiKeys"].([]any) {
		served[fmt.Sprint(k.(*object).V["apiKey"])] = true
	}
	type request struct {
		key, version int
		body, good   string
	}
	var all []request
	for i := range 20 {
		name := fmt.Sprintf("warm-up-%d", i)
		if served[heartbeat] {
			all = append(all,
				request{10, 3, `{"key":"NAME","keyType":0}`, "0"},
				request{12, 0, `{"groupId":"NAME","generationId":1,"memberId":"x"}`, "25"})
		}
		if served[endTxn] {
			all = append(all,
				request{10, 3, `{"key":"NAME","keyType":1}`, "0"},
				request{22, 1, `{"transactionalId":"NAME","transactionTimeoutMs":1000}`, "0"})
		}
		for j := range all {
			all[j].body = strings.ReplaceAll(all[j].body, "NAME", name)
		}
	}
	end := time.Now().Add(b.patience())
	for _, q := range all {
		for {
			r, err := s.ask(q.key, q.version, q.body)
			if err != nil {
				return err
			}
			code := fmt.Sprint(r.V["errorCode"])
			if code == q.good {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("warm-up: key %d answers %s, want %s: %s", q.key, code, q.good, q.body)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// Play runs one scenario and returns what differed, a line for each difference; "" when nothing did.
func (b *Broker) Play(sc *Scenario) string { return b.run(sc, nil) }

// Record fills the answers of this broker in and writes the scenario into dir/AREA/NAME.json.
func (b *Broker) Record(sc *Scenario, dir string) error {
	if faults := b.run(sc, newRecorder()); faults != "" {
		return fmt.Errorf("%s", faults)
	}
	return sc.save(dir)
}

func (b *Broker) run(sc *Scenario, rec *recorder) string {
	const diffsPerStep = 8
	s := newSession(sc, b, rec)
	defer s.close()
	var out strings.Builder
	for i, st := range sc.Steps {
		diffs, err := s.runStep(st)
		what := st.API
		if st.Recv != "" {
			what = "answer of " + st.Recv
		}
		where := fmt.Sprintf("step %d %s v%d", i+1, what, st.Version)
		if st.Note != "" {
			where += " (" + st.Note + ")"
		}
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", where, err)
			break
		}
		for k, d := range diffs {
			if k == diffsPerStep {
				fmt.Fprintf(&out, "... %d more\n", len(diffs)-k)
				break
			}
			fmt.Fprintf(&out, "%s: %s\n", where, d)
		}
		if len(diffs) > 0 && st.Until != nil {
			break
		}
	}
	return out.String()
}
