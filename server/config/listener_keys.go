package config

import (
	"maps"
	"slices"
	"strings"
)

// ownPerListener tells whether listener.name.NAME.KEY has an effect: the keys of TLS, and limits of connections.
func (k *Key) ownPerListener() bool {
	return strings.HasPrefix(k.Name, "ssl.") || k.Name == "max.connections" || k.Name == "max.connection.creation.rate"
}

// listenerOf is the NAME of listener.name.NAME.KEY, where k is the row of KEY.
func listenerOf(name string, k *Key) string {
	return strings.TrimSuffix(strings.TrimPrefix(name, listenerPrefix), "."+k.Name)
}

// listenerKeyName is the key that counts for one listener alone: it has the listener's name in lower case, as in Apache Kafka.
func listenerKeyName(listener, key string) string {
	return listenerPrefix + strings.ToLower(listener) + "." + key
}

// listenerOwn is what was given for one listener alone, or nothing.
func (b *Broker) listenerOwn(listener, key string) (v value, given bool) {
	raw, given := b.lookup(listenerKeyName(listener, key))
	if !given {
		return value{}, false
	}
	return mustKey(key).must(raw), true
}

// ListenerText returns the value of a broker key in force for a listener: its own (listener.name.NAME.KEY), or that of all.
func (b *Broker) ListenerText(listener, key string) string {
	if v, own := b.listenerOwn(listener, key); own {
		return v.text
	}
	return b.Text(key)
}

// ListenerList is ListenerText for LIST keys.
func (b *Broker) ListenerList(listener, key string) []string {
	if v, own := b.listenerOwn(listener, key); own {
		return v.list
	}
	return b.List(key)
}

// ListenerOwnInt returns what was given for a listener alone; false: nothing. For limits, which count beside that of all listeners.
func (b *Broker) ListenerOwnInt(listener, key string) (int64, bool) {
	v, own := b.listenerOwn(listener, key)
	return v.num, own
}

// ListenerFault is the error of a start that fails for the value of a key of a listener, which names where that value was given. Several
// keys: the first one that was given. A value that is a secret, or text of many lines, is not repeated.
func (b *Broker) ListenerFault(listener, text string, keys ...string) error {
	for _, key := range keys {
		for _, name := range []string{listenerKeyName(listener, key), key} {
			if s, ok := b.origins[name]; ok {
				return &LoadError{[]Problem{{s.Origin, s.Key, shown(mustKey(key), s.Value), text}}}
			}
		}
	}
	return &LoadError{[]Problem{{Key: keys[0], Text: text}}}
}

// checkListenerKeys refuses settings for a listener that does not exist: they would be misspelt, and without effect.
func (l *loader) checkListenerKeys() {
	b := l.b
	known := upperList(b.get("controller.listener.names").text)
	for _, listener := range b.Listeners {
		known = append(known, listener.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(l.origins)) {
		k := listenerKey(name)
		if k == nil || !k.ownPerListener() || k.isDefault(k.must(l.origins[name].Value)) {
			continue
		}
		if of := listenerOf(name, k); !slices.ContainsFunc(known, func(n string) bool { return strings.ToLower(n) == of }) {
			s := l.origins[name]
			l.refuse(s, shown(k, s.Value), "no listener has this name; in keys it stands in lower case (listeners: "+strings.ToLower(strings.Join(known, ", "))+")")
		}
	}
}

// interBroker is the listener between brokers. It is named by inter.broker.listener.name, or has the name of
// security.inter.broker.protocol; no listener need have the latter, for one broker has nobody to talk to.
func (b *Broker) interBroker(listeners []Listener) (string, error) {
	const key, protocolKey = "inter.broker.listener.name", "security.inter.broker.protocol"
	name := strings.ToUpper(b.get(key).text)
	_, byProtocol := b.lookup(protocolKey)
	switch protocol := b.get(protocolKey).text; {
	case strings.HasPrefix(protocol, "SASL_"):
		return "", &listenerError{protocolKey, protocol + ": " + BrokerKey("sasl.enabled.mechanisms").Reason}
	case name == "":
		return protocol, nil
	case byProtocol:
		return "", &listenerError{key, "it cannot be set together with " + protocolKey}
	}
	if !slices.ContainsFunc(listeners, func(l Listener) bool { return l.Name == name }) {
		return "", &listenerError{key, name + " is not in listeners"}
	}
	return name, nil
}
