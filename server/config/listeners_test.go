package config

import (
	"errors"
	"reflect"
	"slices"
	"strings"
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
		{"listeners=SASL_SSL://h:1", "listener.security.protocol.map: listener SASL_SSL is SASL_SSL: authentication and authorization are not built yet, and nothing may fall open"},
		{"security.inter.broker.protocol=SASL_PLAINTEXT", "test.properties:1: security.inter.broker.protocol=SASL_PLAINTEXT: SASL_PLAINTEXT: authentication and authorization are not built yet, and nothing may fall open"},
		{"inter.broker.listener.name=X", "test.properties:1: inter.broker.listener.name=X: X is not in listeners"},
		{"security.inter.broker.protocol=SSL\ninter.broker.listener.name=PLAINTEXT",
			"test.properties:2: inter.broker.listener.name=PLAINTEXT: it cannot be set together with security.inter.broker.protocol"},
		{"listener.name.ssl.max.connections=5", "test.properties:1: listener.name.ssl.max.connections=5: no listener has this name; in keys it stands in lower case (listeners: plaintext)"},
		{"listener.name.PLAINTEXT.ssl.client.auth=required",
			"test.properties:1: listener.name.PLAINTEXT.ssl.client.auth=required: no listener has this name; in keys it stands in lower case (listeners: plaintext)"},
		{"listeners=X://h:1\nlistener.security.protocol.map=X:SASL_SSL",
			"test.properties:2: listener.security.protocol.map=X:SASL_SSL: listener X is SASL_SSL: authentication and authorization are not built yet, and nothing may fall open"},
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

func TestListenerKeys(t *testing.T) {
	b := mustLoad(t, "listeners=IN://h:1,OUT://h:2\nlistener.security.protocol.map=IN:PLAINTEXT,OUT:SSL\ninter.broker.listener.name=in\n"+
		"listener.name.out.ssl.cipher.suites=A,B\nssl.cipher.suites=C\nlistener.name.out.max.connections=7\nlistener.name.out.ssl.key.password=secret")
	if b.InterBroker != "IN" || b.Listeners[1].Protocol != "SSL" {
		t.Errorf("between brokers %s, listeners %+v", b.InterBroker, b.Listeners)
	}
	if got := b.ListenerText("IN", "ssl.cipher.suites") + " " + strings.Join(b.ListenerList("OUT", "ssl.cipher.suites"), "+"); got != "C A+B" {
		t.Errorf("cipher suites are %s", got)
	}
	dynamic, bad := b.WithDynamic(map[string]string{"listener.name.out.max.connections": "8", "listener.name.in.max.connections": "x"},
		map[string]string{"listener.name.in.max.connection.creation.rate": "9"})
	if len(bad) != 1 || bad[0].Key != "max.connections" {
		t.Errorf("refused: %v", bad)
	}
	for _, c := range []struct {
		b             *Broker
		listener, key string
		want          int64
		own           bool
	}{
		{b, "OUT", "max.connections", 7, true}, {b, "IN", "max.connections", 0, false}, {dynamic, "OUT", "max.connections", 8, true},
		{dynamic, "IN", "max.connections", 0, false}, {dynamic, "IN", "max.connection.creation.rate", 9, true},
	} {
		if n, own := c.b.ListenerOwnInt(c.listener, c.key); n != c.want || own != c.own {
			t.Errorf("%s of %s: got %d %v, want %d %v", c.key, c.listener, n, own, c.want, c.own)
		}
	}
	names := []string{"listener.name.out.max.connections", "listener.name.out.ssl.key.password"}
	want := []Entry{
		{Name: names[0], Value: "8", Source: SourceDynamicDefault, Type: TypeInt, Doc: mustKey("max.connections").Help,
			Synonyms: []Named{{names[0], "8", false, SourceDynamicDefault}, {names[0], "7", false, SourceStatic}}},
		{Name: names[1], Null: true, Sensitive: true, Source: SourceStatic, Type: TypePassword, Doc: mustKey("ssl.key.password").Help,
			Synonyms: []Named{{names[1], "", true, SourceStatic}}},
	}
	if got := dynamic.DescribeBroker(names); !reflect.DeepEqual(got, want) {
		t.Errorf("described\n got %+v\nwant %+v", got, want)
	}
	if got := dynamic.DescribeDefaults(nil); len(got) != 1 || got[0].Name != names[0] {
		t.Errorf("defaults are %+v", got)
	}
	for _, c := range []struct{ listener, want string }{
		{"OUT", "test.properties:4: listener.name.out.ssl.cipher.suites=A,B: bad"}, {"IN", "test.properties:5: ssl.cipher.suites=C: bad"},
	} {
		if err := b.ListenerFault(c.listener, "bad", "ssl.protocol", "ssl.cipher.suites"); err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	if err := b.ListenerFault("OUT", "wrong", "ssl.key.password"); err.Error() != "test.properties:7: listener.name.out.ssl.key.password=[hidden]: wrong" {
		t.Error(err)
	}
}
