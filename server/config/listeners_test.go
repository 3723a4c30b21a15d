package config

import (
	"errors"
	"slices"
	"testing"
)

func TestListeners(t *testing.T) {
	for _, c := range []struct {
		text string
		want []Listener
	}{
		{"listeners=PLAINTEXT://127.0.0.1:0", []Listener{{"PLAINTEXT", "127.0.0.1", 0, "127.0.0.1", 0, "PLAINTEXT"}}},
		{"listeners=plaintext://[::1]:9092", []Listener{{"PLAINTEXT", "::1", 9092, "::1", 9092, "PLAINTEXT"}}},
		{"listeners=PLAINTEXT://0.0.0.0:9092\nadvertised.listeners=PLAINTEXT://kafka.example:19092",
			[]Listener{{"PLAINTEXT", "0.0.0.0", 9092, "kafka.example", 19092, "PLAINTEXT"}}},
		{"listeners=PLAINTEXT://0.0.0.0:0\nadvertised.listeners=PLAINTEXT://kafka.example:0",
			[]Listener{{"PLAINTEXT", "0.0.0.0", 0, "kafka.example", 0, "PLAINTEXT"}}},
		{"listeners=IN://:1, OUT://h:2\nlistener.security.protocol.map=in:plaintext,OUT:PLAINTEXT\nadvertised.listeners=OUT://o:3",
			[]Listener{{"IN", "", 1, "box.example", 1, "PLAINTEXT"}, {"OUT", "h", 2, "o", 3, "PLAINTEXT"}}},
		{"listeners=IN://h:0,OUT://h:0\nlistener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT",
			[]Listener{{"IN", "h", 0, "h", 0, "PLAINTEXT"}, {"OUT", "h", 0, "h", 0, "PLAINTEXT"}}},
		{"listeners=PLAINTEXT://a:1,CTL://a:1\ncontroller.listener.names=ctl", []Listener{{"PLAINTEXT", "a", 1, "a", 1, "PLAINTEXT"}}},
	} {
		if got := mustLoad(t, c.text).Listeners; !slices.Equal(got, c.want) {
			t.Errorf("%q:\n got %+v\nwant %+v", c.text, got, c.want)
		}
	}
}

func TestListenerErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"listeners=:9092", `test.properties:1: listeners=:9092: ":9092" is not NAME://host:port`},
		{"listeners=", `test.properties:1: listeners: "" is not NAME://host:port`},
		{"listeners=PLAINTEXT://h", `test.properties:1: listeners=PLAINTEXT://h: "PLAINTEXT://h" is not NAME://host:port`},
		{"listeners=PLAINTEXT://h:65536", `test.properties:1: listeners=PLAINTEXT://h:65536: "PLAINTEXT://h:65536": the port must be 0 to 65535`},
		{"listeners=PLAINTEXT://h:1,plaintext://h:2", "test.properties:1: listeners=PLAINTEXT://h:1,plaintext://h:2: two listeners are named PLAINTEXT"},
		{"listeners=PLAINTEXT://h:1,B://:1\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
			"test.properties:1: listeners=PLAINTEXT://h:1,B://:1: PLAINTEXT and B share port 1"},
		{"listeners=X://h:1", "listener.security.protocol.map: no security protocol for listener X"},
		{"listeners=SSL://h:1", "listener.security.protocol.map: listener SSL is SSL: authentication, encryption and authorization are not built yet, and nothing may fall open"},
		{"listeners=X://h:1\nlistener.security.protocol.map=X:SASL_SSL",
			"test.properties:2: listener.security.protocol.map=X:SASL_SSL: listener X is SASL_SSL: authentication, encryption and authorization are not built yet, and nothing may fall open"},
		{"listener.security.protocol.map=X:TLS",
			`test.properties:1: listener.security.protocol.map=X:TLS: "X:TLS" is not NAME:PROTOCOL with a protocol of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL`},
		{"listener.security.protocol.map=X:SSL,x:SSL", "test.properties:1: listener.security.protocol.map=X:SSL,x:SSL: X stands there twice"},
		{"controller.listener.names=PLAINTEXT", "listeners: at least one listener is needed besides those of the controller"},
		{"listeners=PLAINTEXT://0.0.0.0:1", "test.properties:1: listeners=PLAINTEXT://0.0.0.0:1: clients cannot connect to 0.0.0.0; set advertised.listeners to an address they can reach"},
		{"advertised.listeners=B://h:1", "test.properties:1: advertised.listeners=B://h:1: B is not in listeners"},
		{"listeners=PLAINTEXT://h:1,C://h:2\ncontroller.listener.names=C\nadvertised.listeners=C://h:1",
			"test.properties:3: advertised.listeners=C://h:1: C is a listener of the controller"},
	} {
		if _, err := load(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
	_, err := Load(Options{Hostname: func() (string, error) { return "", errors.New("no name") }})
	if want := "listeners: no host to advertise: no name; set advertised.listeners"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestListenersValue(t *testing.T) {
	for arg, want := range map[string]string{
		":9092": "PLAINTEXT://:9092", "127.0.0.1:0": "PLAINTEXT://127.0.0.1:0", "A://h:1, [::1]:2": "A://h:1,PLAINTEXT://[::1]:2",
	} {
		if got := ListenersValue(arg); got != want {
			t.Errorf("%s gives %s, want %s", arg, got, want)
		}
	}
}
