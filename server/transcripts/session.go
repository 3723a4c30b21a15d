package transcripts

// One run of one scenario: its connections, its variables, what it waits for.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"regexp"
	"strconv"
	"time"
)

const (
	dialTimeout   = 5 * time.Second
	maxAnswer     = 200 << 20 // bytes; a longer frame is taken for garbage
	apiVersions   = 18
	sasl          = 17
	saslAuth      = 36
	controlledOff = 7 // ControlledShutdown v0 has a header without client id
	clientName    = "replay"
)

type connection struct {
	net.Conn
	port        int // that was dialled
	correlation int32
}

// pending is a request whose answer is still to be read.
type pending struct {
	correlation  int32
	msg          *message
	key, version int
	step         *step
	sent         time.Time
}

type session struct {
	sc    *Scenario
	b     *Broker
	vars  map[string]any
	conns map[string]*connection
	async map[string]*pending
	scram scramState
	rec   *recorder // nil in replay
}

type diff struct{ path, want, got string }

func (d diff) String() string { return fmt.Sprintf("%s: want %s, got %s", d.path, d.want, d.got) }

func newSession(sc *Scenario, b *Broker, rec *recorder) *session {
	const letters = "bcdfghjkmnpqrtvwxz"
	run := make([]byte, 8)
	for i := range run {
		run[i] = letters[rand.Intn(len(letters))]
	}
	return &session{
		sc: sc, b: b, rec: rec,
		conns: map[string]*connection{},
		async: map[string]*pending{},
		vars: map[string]any{
			"run":      string(run),
			"node":     num(int64(b.node)),
			"nodeName": strconv.Itoa(b.node),
			"now":      num(time.Now().UnixMilli()),
		},
	}
}

func (s *session) close() {
	for name, c := range s.conns {
		c.Close()
		delete(s.conns, name)
	}
}

// conn returns the connection of that name, dialled (and logged in) at its first use.
func (s *session) conn(name string) (*connection, error) {
	if c := s.conns[name]; c != nil {
		return c, nil
	}
	spec := s.sc.Connections[name]
	addr := s.b.Plain
	switch spec.Listener {
	case "sasl":
		addr = s.b.SASL
	case "saslshort":
		addr = s.b.SASLShort
	}
	nc, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: nc, port: nc.RemoteAddr().(*net.TCPAddr).Port}
	s.conns[name] = c
	if spec.User != "" {
		if err := s.login(c, spec); err != nil {
			return nil, fmt.Errorf("login of %s as %s: %w", name, spec.User, err)
		}
	}
	return c, nil
}

// ask sends one request, given as JSON, and waits for its answer; for what surrounds the scripts.
func (s *session) ask(key, version int, body string) (*object, error) {
	req, err := parseJSON([]byte(body))
	if err != nil {
		return nil, err
	}
	c, err := s.conn("ask")
	if err != nil {
		return nil, err
	}
	return s.askOn(c, key, version, req)
}

func (s *session) askOn(c *connection, key, version int, req any) (*object, error) {
	p, _, err := s.send(c, key, version, clientName, req, nil)
	if err != nil {
		return nil, err
	}
	r, _, err := s.receive(c, p, s.b.patience())
	return r, err
}

func (s *session) login(c *connection, spec connectionSpec) error {
	mechanism := spec.Mechanism
	if mechanism == "" {
		mechanism = "PLAIN"
	}
	r, err := s.askOn(c, sasl, 1, objectOf("mechanism", mechanism))
	if err != nil {
		return err
	}
	if code := toInt(r.V["errorCode"], "errorCode"); code != 0 {
		return fmt.Errorf("handshake error %d", code)
	}
	tokens := []*object{objectOf("plain", []any{"", spec.User, spec.Password})}
	if mechanism != "PLAIN" {
		tokens = []*object{
			objectOf("scram", objectOf("step", "first", "mechanism", mechanism, "user", spec.User)),
			objectOf("scram", objectOf("step", "final", "password", spec.Password)),
		}
	}
	for _, t := range tokens {
		r, err := s.askOn(c, saslAuth, 2, objectOf("authBytes", t))
		if err != nil {
			return err
		}
		if code := toInt(r.V["errorCode"], "errorCode"); code != 0 {
			return fmt.Errorf("error %d %v", code, r.V["errorMessage"])
		}
		s.scram.server(toBytes(r.V["authBytes"], "authBytes"))
	}
	return nil
}

// frame returns length, request header and body.
func frame(key, version int, correlation int32, clientID any, body []byte, flexible bool) []byte {
	b := make([]byte, 4)
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	if key != controlledOff || version != 0 {
		if id, ok := clientID.(string); ok {
			b = binary.BigEndian.AppendUint16(b, uint16(len(id)))
			b = append(b, id...)
		} else {
			b = append(b, 0xff, 0xff)
		}
	}
	if flexible {
		b = append(b, 0)
	}
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// send returns what to wait for and the bytes sent after the frame length.
func (s *session) send(c *connection, key, version int, clientID any, req any, st *step) (*pending, []byte, error) {
	m := schemas.Requests[strconv.Itoa(key)]
	if m == nil {
		return nil, nil, fmt.Errorf("no schema for key %d", key)
	}
	body, err := encodeMessage(m, version, req, s)
	if err != nil {
		return nil, nil, err
	}
	c.correlation++
	b := frame(key, version, c.correlation, clientID, body, m.Flex.has(version))
	p := &pending{
		correlation: c.correlation, msg: schemas.Responses[strconv.Itoa(key)],
		key: key, version: version, step: st, sent: time.Now(),
	}
	_, err = c.Write(b)
	return p, b[4:], err
}

var (
	errClosed = errors.New("connection closed by broker")
	varRef    = regexp.MustCompile(`\$\{([a-zA-Z0-9_]+)([+-][0-9]+)?\}`)
)

// readFrame returns errClosed or os.ErrDeadlineExceeded when no frame comes.
func (c *connection) readFrame(timeout time.Duration) ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var h [4]byte
	if _, err := io.ReadFull(c, h[:]); err != nil {
		return nil, readError(err)
	}
	n := int(int32(binary.BigEndian.Uint32(h[:])))
	if n < 0 || n > maxAnswer {
		return nil, fmt.Errorf("frame length %d", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, readError(err)
	}
	return b, nil
}

func readError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return errClosed
}

// receive reads the answer of p and decodes it. The bytes are those after the frame length.
func (s *session) receive(c *connection, p *pending, timeout time.Duration) (*object, []byte, error) {
	b, err := c.readFrame(timeout)
	if err != nil {
		return nil, nil, err
	}
	if len(b) < 4 {
		return nil, b, fmt.Errorf("answer of %d bytes", len(b))
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != p.correlation {
		return nil, b, fmt.Errorf("correlation id: want %d, got %d", p.correlation, got)
	}
	body, version := b[4:], p.version
	if p.key == apiVersions {
		if version < 0 || version > 3 || version > 0 && len(body) >= 2 && binary.BigEndian.Uint16(body) == 35 {
			version = 0 // a version that the broker does not know is answered as v0
		}
	} else if p.msg.Flex.has(version) {
		if len(body) < 1 || body[0] != 0 {
			return nil, b, errors.New("flexible response header without its empty tag section")
		}
		body = body[1:]
	}
	o, err := decodeMessage(p.msg, version, body)
	return o, b, err
}

// subst replaces ${name} and ${name+n} in a request.
func (s *session) subst(v any) (any, error) {
	switch x := v.(type) {
	case *object:
		o := newObject()
		for _, k := range x.K {
			y, err := s.subst(x.V[k])
			if err != nil {
				return nil, err
			}
			o.set(k, y)
		}
		return o, nil
	case []any:
		a := make([]any, len(x))
		for i := range x {
			y, err := s.subst(x[i])
			if err != nil {
				return nil, err
			}
			a[i] = y
		}
		return a, nil
	case string:
		return s.substText(x)
	}
	return v, nil
}

func (s *session) substText(x string) (any, error) {
	var missing error
	if m := varRef.FindStringSubmatch(x); m != nil && m[0] == x {
		v, ok := s.vars[m[1]]
		if !ok {
			return nil, fmt.Errorf("${%s} is not bound", m[1])
		}
		if m[2] == "" {
			return v, nil
		}
		n, err := strconv.ParseInt(m[2], 10, 64)
		return num(toInt(v, x) + n), err
	}
	out := varRef.ReplaceAllStringFunc(x, func(r string) string {
		m := varRef.FindStringSubmatch(r)
		v, ok := s.vars[m[1]]
		if !ok {
			missing = fmt.Errorf("${%s} is not bound", m[1])
		}
		return fmt.Sprint(v)
	})
	return out, missing
}
