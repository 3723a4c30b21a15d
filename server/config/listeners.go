package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Listener is an address to listen on and the one that clients are told.
type Listener struct {
	Name           string // upper case
	Host           string // "" for all interfaces
	Port           uint16 // 0: any free port
	AdvertisedHost string // never ""
	AdvertisedPort uint16 // 0: the port that Port became
	Protocol       string // PLAINTEXT or SSL
}

// listenerError names the key that is at fault.
type listenerError struct{ key, text string }

func (e *listenerError) Error() string { return e.key + ": " + e.text }

// ListenersValue turns the argument of --listen or --advertise into a value of
// listeners or advertised.listeners: an entry without NAME:// is PLAINTEXT.
func ListenersValue(arg string) string {
	entries := strings.Split(arg, ",")
	for i, e := range entries {
		if e = javaTrim(e); !strings.Contains(e, "://") {
			e = "PLAINTEXT://" + e
		}
		entries[i] = e
	}
	return strings.Join(entries, ",")
}

// isHostPort tells whether text is host:port; the host may be empty.
func isHostPort(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

type endpoint struct {
	name, host string
	port       uint16
}

// parseEndpoints reads NAME://host:port,... as the value of key.
func parseEndpoints(key, text string) ([]endpoint, error) {
	var out []endpoint
	for _, entry := range strings.Split(text, ",") {
		entry = javaTrim(entry)
		name, address, ok := strings.Cut(entry, "://")
		if !ok || name == "" {
			return nil, &listenerError{key, fmt.Sprintf("%q is not NAME://host:port", entry)}
		}
		host, portText, err := net.SplitHostPort(address)
		if err != nil {
			return nil, &listenerError{key, fmt.Sprintf("%q is not NAME://host:port", entry)}
		}
		port, err := strconv.ParseUint(portText, 10, 16)
		if err != nil {
			return nil, &listenerError{key, fmt.Sprintf("%q: the port must be 0 to 65535", entry)}
		}
		e := endpoint{strings.ToUpper(name), host, uint16(port)}
		if slices.ContainsFunc(out, func(o endpoint) bool { return o.name == e.name }) {
			return nil, &listenerError{key, "two listeners are named " + e.name}
		}
		out = append(out, e)
	}
	return out, nil
}

// parseListeners joins listeners, advertised.listeners and the protocol map.
// Listeners of the KRaft controller are left out.
func (b *Broker) parseListeners() ([]Listener, error) {
	all, err := parseEndpoints("listeners", b.get("listeners").text)
	if err != nil {
		return nil, err
	}
	protocols, err := b.protocols()
	if err != nil {
		return nil, err
	}
	controllers := upperList(b.get("controller.listener.names").text)
	var out []Listener
	for _, e := range all {
		if slices.Contains(controllers, e.name) {
			continue
		}
		protocol, ok := protocols[e.name]
		switch {
		case !ok:
			return nil, &listenerError{"listener.security.protocol.map", "no security protocol for listener " + e.name}
		case protocol != "PLAINTEXT" && protocol != "SSL":
			return nil, &listenerError{"listener.security.protocol.map", fmt.Sprintf(
				"listener %s is %s: %s", e.name, protocol, BrokerKey("sasl.enabled.mechanisms").Reason)}
		}
		for _, o := range out {
			if o.Port != 0 && o.Port == e.port && (o.Host == e.host || o.Host == "" || e.host == "") {
				return nil, &listenerError{"listeners", fmt.Sprintf("%s and %s share port %d", o.Name, e.name, e.port)}
			}
		}
		out = append(out, Listener{Name: e.name, Host: e.host, Port: e.port, AdvertisedHost: e.host, AdvertisedPort: e.port, Protocol: protocol})
	}
	if len(out) == 0 {
		return nil, &listenerError{"listeners", "at least one listener is needed besides those of the controller"}
	}
	return out, b.advertise(out, controllers)
}

// advertise fills in what clients are told.
func (b *Broker) advertise(listeners []Listener, controllers []string) error {
	key := "listeners"
	if text := b.get("advertised.listeners").text; text != "" {
		key = "advertised.listeners"
		told, err := parseEndpoints(key, text)
		if err != nil {
			return err
		}
		for _, e := range told {
			i := slices.IndexFunc(listeners, func(l Listener) bool { return l.Name == e.name })
			switch {
			case slices.Contains(controllers, e.name):
				return &listenerError{key, e.name + " is a listener of the controller"}
			case i < 0:
				return &listenerError{key, e.name + " is not in listeners"}
			}
			listeners[i].AdvertisedHost, listeners[i].AdvertisedPort = e.host, e.port
		}
	}
	for i := range listeners {
		l := &listeners[i]
		if ip := net.ParseIP(l.AdvertisedHost); ip != nil && ip.IsUnspecified() {
			return &listenerError{key, fmt.Sprintf("clients cannot connect to %s; set advertised.listeners to an address they can reach", l.AdvertisedHost)}
		}
		if l.AdvertisedHost == "" {
			name, err := b.hostname()
			if err != nil {
				return &listenerError{key, fmt.Sprintf("no host to advertise: %v; set advertised.listeners", err)}
			}
			l.AdvertisedHost = name
		}
	}
	return nil
}

// protocols reads listener.security.protocol.map.
func (b *Broker) protocols() (map[string]string, error) {
	const key = "listener.security.protocol.map"
	m := map[string]string{}
	for _, entry := range strings.Split(b.get(key).text, ",") {
		name, protocol, ok := strings.Cut(javaTrim(entry), ":")
		name, protocol = strings.ToUpper(javaTrim(name)), strings.ToUpper(javaTrim(protocol))
		if !ok || name == "" || !slices.Contains(BrokerKey("security.inter.broker.protocol").Choice, protocol) {
			return nil, &listenerError{key, fmt.Sprintf("%q is not NAME:PROTOCOL with a protocol of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", entry)}
		}
		if _, twice := m[name]; twice {
			return nil, &listenerError{key, name + " stands there twice"}
		}
		m[name] = protocol
	}
	return m, nil
}

func upperList(text string) []string {
	var out []string
	for _, s := range strings.Split(text, ",") {
		if s = javaTrim(s); s != "" {
			out = append(out, strings.ToUpper(s))
		}
	}
	return out
}
