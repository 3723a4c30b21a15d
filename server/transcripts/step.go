package transcripts

// One step of a scenario: what is sent, what must come, how it compares.

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	rawAnswer      = 8 * time.Second
	defaultSilence = 300 * time.Millisecond
	untilPause     = 20 * time.Millisecond
	shownBytes     = 80
)

// runStep does one step. The differences are expectations not met; an error means that the scenario cannot go on.
func (s *session) runStep(st *step) (diffs []diff, err error) {
	defer func() {
		if r := recover(); r != nil { // the codec panics on scripts and answers that make no sense
			err = fmt.Errorf("%v", r)
		}
	}()
	switch {
	case st.WaitMs > 0:
		time.Sleep(time.Duration(st.WaitMs) * time.Millisecond)
		return nil, nil
	case st.Close != "":
		if c := s.conns[st.Close]; c != nil {
			c.Close()
			delete(s.conns, st.Close)
		}
		return nil, nil
	case st.Restart:
		return nil, s.restart()
	case st.Recv != "":
		p := s.async[st.Recv]
		if p == nil {
			return nil, fmt.Errorf("no request %q is waiting", st.Recv)
		}
		c, err := s.conn(p.step.Conn)
		if err != nil {
			return nil, err
		}
		return s.finish(st, c, p)
	}
	c, err := s.conn(st.Conn)
	if err != nil {
		return nil, err
	}
	if st.Raw != "" {
		return s.raw(st, c)
	}
	return s.request(st, c)
}

func (s *session) restart() error {
	s.close()
	if err := s.b.Restart(); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	around := newSession(&Scenario{}, s.b, nil)
	defer around.close()
	err := s.b.warmUp(around)
	if err == nil && s.b.Settle > 0 {
		time.Sleep(s.b.Settle)
		err = s.b.warmUp(around)
	}
	return err
}

// raw sends bytes as they are.
func (s *session) raw(st *step, c *connection) ([]diff, error) {
	text, err := s.substText(st.Raw)
	if err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(strings.ReplaceAll(text.(string), " ", ""))
	if err != nil {
		return nil, err
	}
	_, _ = c.Write(b) // an error shows as a closed connection below
	if st.Outcome == "rawframe" {
		return s.rawFrame(st, c)
	}
	p := &pending{sent: time.Now(), step: st, correlation: -1}
	if st.Decode != nil {
		var name string
		if err := errors.Join(json.Unmarshal(st.Decode[0], &name), json.Unmarshal(st.Decode[1], &p.version)); err != nil {
			return nil, err
		}
		p.key, _ = apiKey(name)
		p.msg = schemas.Responses[strconv.Itoa(p.key)]
		if len(b) >= 12 {
			p.correlation = int32(binary.BigEndian.Uint32(b[8:]))
		}
	}
	return s.finish(st, c, p)
}

// rawFrame reads an answer without header, such as SASL tokens after SaslHandshake v0.
func (s *session) rawFrame(st *step, c *connection) ([]diff, error) {
	got, err := c.readFrame(rawAnswer)
	if err != nil {
		return nil, err
	}
	h := hex.EncodeToString(got)
	if s.rec != nil {
		st.RespHex = h
	}
	if h != st.RespHex {
		return []diff{{"frame", st.RespHex, h}}, nil
	}
	return nil, nil
}

func (s *session) request(st *step, c *connection) ([]diff, error) {
	key, ok := apiKey(st.API)
	if !ok {
		return nil, fmt.Errorf("no API named %q", st.API)
	}
	var req any = newObject()
	var err error
	if len(st.Request) > 0 {
		if req, err = parseJSON(st.Request); err != nil {
			return nil, err
		}
	}
	if s.rec != nil {
		s.rec.literals(req)
		st.Key = &key
	}
	if req, err = s.subst(req); err != nil {
		return nil, err
	}
	var clientID any = clientName
	if st.ClientID != nil {
		clientID = st.ClientID
		if clientID == "<null>" {
			clientID = nil
		}
	}
	for deadline := time.Now().Add(s.b.patience()); ; time.Sleep(untilPause) {
		p, sent, err := s.send(c, key, st.Version, clientID, req, st)
		if err != nil && p == nil {
			return nil, err
		}
		if s.rec != nil {
			st.ReqHex = hex.EncodeToString(sent)
		}
		if st.Async != "" {
			s.async[st.Async] = p
			return nil, nil
		}
		if len(st.Until) == 0 {
			return s.finish(st, c, p)
		}
		r, raw, err := s.receive(c, p, s.b.patience())
		if err != nil {
			return nil, err
		}
		unmet, err := s.unmet(st, r)
		if err != nil {
			return nil, err
		}
		if len(unmet) == 0 || time.Now().After(deadline) {
			return s.compare(st, c, r, raw, time.Since(p.sent))
		}
	}
}

// unmet returns what of the step's "until" is not so in r.
func (s *session) unmet(st *step, r *object) (diffs []diff, err error) {
	for path, want := range st.Until {
		w, err := s.subst(normal(want))
		if err != nil {
			return nil, err
		}
		if got := mustText(get(r, path)); got != mustText(w) {
			diffs = append(diffs, diff{path, mustText(w), got + " (until not met)"})
		}
	}
	return diffs, nil
}

// normal turns what encoding/json made into values of this package.
func normal(v any) any {
	x, err := parseJSON([]byte(mustText(v)))
	if err != nil {
		panic(err)
	}
	return x
}

// finish waits for what the step says must come.
func (s *session) finish(st *step, c *connection, p *pending) ([]diff, error) {
	if st.Outcome == "silent" {
		return finishSilent(st, c)
	}
	var r *object
	var raw []byte
	var err error
	if p.msg != nil {
		r, raw, err = s.receive(c, p, s.b.patience())
	} else if raw, err = c.readFrame(rawAnswer); err == nil {
		err = fmt.Errorf("an answer: %s", hex.EncodeToString(raw[:min(len(raw), shownBytes)]))
	}
	took := time.Since(p.sent)
	if errors.Is(err, errClosed) {
		c.Close()
		delete(s.conns, p.step.Conn)
		if s.rec != nil {
			st.Outcome = "closed"
		}
		if st.Outcome == "closed" || st.OrClosed {
			return nil, nil
		}
		return []diff{{"outcome", "an answer", "connection closed"}}, nil
	}
	if st.Outcome == "closed" {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, errors.New("outcome: want the connection closed, got neither answer nor close")
		}
		return nil, fmt.Errorf("outcome: want the connection closed, got an answer: %s %v", mustText(r), err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errors.New("outcome: no answer and no close")
	}
	if err != nil {
		return nil, err
	}
	if token, ok := r.V["authBytes"].(string); ok && p.key == saslAuth {
		s.scram.server(toBytes(token, "authBytes"))
	}
	return s.compare(st, c, r, raw, took)
}

// finishSilent wants nothing to come for a while, on an open connection.
func finishSilent(st *step, c *connection) ([]diff, error) {
	silence := defaultSilence
	if st.SilentMs > 0 {
		silence = time.Duration(st.SilentMs) * time.Millisecond
	}
	b, err := c.readFrame(silence)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, nil
	case errors.Is(err, errClosed):
		return []diff{{"outcome", "no answer, connection open", "connection closed"}}, nil
	case err != nil:
		return nil, err
	}
	return nil, fmt.Errorf("outcome: want no answer yet, got one of %d bytes: %s", len(b), hex.EncodeToString(b[:min(len(b), shownBytes)]))
}

func (s *session) compare(st *step, c *connection, r *object, raw []byte, took time.Duration) ([]diff, error) {
	s.vars["port"] = num(int64(c.port))
	ms := took.Milliseconds()
	if s.rec != nil {
		const longest = 20000
		st.RespHex = hex.EncodeToString(raw)
		if len(raw) > longest {
			st.RespHex = st.RespHex[:longest] + "..."
		}
		st.TookMs = &ms
		var err error
		if st.Response, err = marshal(s.rec.generalise(s, st, r)); err != nil {
			return nil, err
		}
		return s.unmet(st, r)
	}
	want, err := parseJSON(st.Response)
	if err != nil {
		return nil, err
	}
	m := &matcher{s: s, unordered: map[string]bool{}}
	for _, u := range st.Unordered {
		m.unordered[u] = true
	}
	m.match("", "", want, r)
	if st.AtLeastMs > 0 && ms < int64(st.AtLeastMs) {
		m.diffs = append(m.diffs, diff{"time", fmt.Sprintf("at least %d ms", st.AtLeastMs), fmt.Sprintf("%d ms", ms)})
	}
	if st.AtMostMs > 0 && ms > int64(st.AtMostMs) {
		m.diffs = append(m.diffs, diff{"time", fmt.Sprintf("at most %d ms", st.AtMostMs), fmt.Sprintf("%d ms", ms)})
	}
	return m.diffs, nil
}
