package config

import (
	"maps"
	"slices"
	"strconv"
)

// Source says where a value comes from, numbered as on the wire (KIP-226).
type Source int8

// The sources of DescribeConfigs v1 and above.
const (
	SourceTopic          Source = 1
	SourceDynamicBroker  Source = 2
	SourceDynamicDefault Source = 3
	SourceStatic         Source = 4
	SourceDefault        Source = 5
)

// Named is a synonym of an entry: a key that could give the value.
type Named struct {
	Name   string
	Value  string
	Null   bool
	Source Source
}

// Entry is a key as DescribeConfigs and CreateTopics show it.
type Entry struct {
	Name      string
	Value     string
	Null      bool // the value is null, because there is none or it is sensitive
	Source    Source
	ReadOnly  bool
	Sensitive bool
	Synonyms  []Named // strongest first
	Type      Type
	Doc       string
}

// DescribeTopic returns the entries of a topic with the given settings, in order
// of name: all, or those in names when it is not nil (unknown ones are left out).
func (b *Broker) DescribeTopic(overrides map[string]string, names []string) []Entry {
	var out []Entry
	for i := range topicKeys {
		k := &topicKeys[i]
		if names != nil && !slices.Contains(names, k.Name) {
			continue
		}
		e := Entry{Name: k.Name, Sensitive: k.Sensitive(), Type: k.Type, Doc: k.Help}
		raw, given := overrides[k.Name]
		if given {
			e.Value = k.display(raw)
			e.Synonyms = append(e.Synonyms, Named{Name: k.Name, Value: e.Value, Source: SourceTopic})
		} else {
			e.Value = b.topicDefault(k).text
		}
		if len(k.Synonyms) > 0 {
			// Of synonyms in other units Apache lists the first alone here.
			e.Synonyms = append(e.Synonyms, b.synonyms(k.Synonyms[0].Name)...)
		}
		e.Source = firstSource(e.Synonyms)
		out = append(out, e)
	}
	return out
}

// display writes a stored value in its normal form, or as it is if a former
// version took it and this one would not.
func (k *Key) display(raw string) string {
	if v, err := k.parse(raw); err == nil {
		return v.text
	}
	return raw
}

// CreatedTopic returns the entries that CreateTopics v5 and above answers, as
// Apache's controller makes them: it looks at every synonym where DescribeConfigs
// looks at the first one, shows values as they were given, and does not work
// message.timestamp.difference.max.ms in. Synonyms are not filled in.
func (b *Broker) CreatedTopic(overrides map[string]string) []Entry {
	out := make([]Entry, len(topicKeys))
	for i := range topicKeys {
		k := &topicKeys[i]
		e := Entry{Name: k.Name, Value: k.Default, Source: SourceDefault, Sensitive: k.Sensitive(), Type: k.Type, Doc: k.Help}
		if raw, own := overrides[k.Name]; own {
			e.Value, e.Source = raw, SourceTopic
		} else {
			b.fromBroker(k, &e)
		}
		out[i] = e
	}
	return out
}

// fromBroker fills in what was given for a synonym of k, the strongest source
// first.
func (b *Broker) fromBroker(k *Key, e *Entry) {
	for _, from := range b.sources() {
		for _, s := range k.Synonyms {
			raw, given := from.values[s.Name]
			if !given {
				continue
			}
			if e.Value, e.Source = raw, from.source; s.Factor != 1 {
				e.Value = strconv.FormatInt(mustKey(s.Name).must(raw).num*s.Factor, 10)
			}
			return
		}
	}
}

type sourced struct {
	values map[string]string
	source Source
}

// sources returns what was given for broker keys, strongest first.
func (b *Broker) sources() []sourced {
	return []sourced{{b.own, SourceDynamicBroker}, {b.all, SourceDynamicDefault}, {b.static, SourceStatic}}
}

// alternatives are the broker keys that stand for one value, strongest first.
var alternatives = [][]string{
	{"log.roll.ms", "log.roll.hours"},
	{"log.roll.jitter.ms", "log.roll.jitter.hours"},
	{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"},
	{"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
}

// alternativesOf returns the row of alternatives that name stands in. The flush
// scheduler's interval is a default for the other key, not another name of it.
func alternativesOf(name string) []string {
	for _, a := range alternatives {
		if slices.Contains(a, name) && name != "log.flush.scheduler.interval.ms" {
			return a
		}
	}
	return []string{name}
}

// synonyms returns the keys and sources that could give a broker key its value,
// as Apache lists them: by source, then by key, from the key itself on.
func (b *Broker) synonyms(name string) []Named {
	keys := alternativesOf(name)
	var out []Named
	add := func(key, raw string, source Source) {
		if len(out) > 0 || key == name {
			n := Named{Name: key, Value: raw, Source: source}
			if k := mustKey(key); k.Sensitive() {
				n.Value, n.Null = "", true
			}
			out = append(out, n)
		}
	}
	for _, from := range b.sources() {
		for _, key := range keys {
			if raw, ok := from.values[key]; ok {
				add(key, raw, from.source)
			}
		}
	}
	for _, key := range keys {
		if k := mustKey(key); !k.NoDefault {
			add(key, k.must(k.Default).text, SourceDefault)
		}
	}
	return out
}

func firstSource(synonyms []Named) Source {
	if len(synonyms) == 0 {
		return SourceDefault
	}
	return synonyms[0].Source
}

// DescribeBroker returns the entries of this broker, in order of name: all, or
// those in names when it is not nil (unknown ones are left out).
func (b *Broker) DescribeBroker(names []string) []Entry {
	var out []Entry
	for i := range brokerKeys {
		k := &brokerKeys[i]
		_, given := b.lookup(k.Name)
		if names != nil && !slices.Contains(names, k.Name) || (k.Internal || k.Update == DynamicOnly) && !given {
			continue
		}
		out = append(out, b.brokerEntry(k, b.synonyms(k.Name)))
	}
	for _, from := range b.sources() { // a stronger one is first, and stays
		for name := range from.values {
			if k := listenerKey(name); k != nil && (names == nil || slices.Contains(names, name)) {
				out = append(out, b.listenerEntry(k, name))
			}
		}
	}
	out = append(out, b.unknownEntries(b.unknown[1], SourceDynamicBroker, names)...)
	out = append(out, b.unknownEntries(b.unknown[0], SourceDynamicDefault, names)...)
	sortEntries(out)
	return slices.CompactFunc(out, func(a, c Entry) bool { return a.Name == c.Name })
}

// DescribeDefaults returns the dynamic settings of all brokers (the resource
// with an empty name), selected like DescribeBroker.
func (b *Broker) DescribeDefaults(names []string) []Entry {
	var out []Entry
	for name := range b.all {
		if names != nil && !slices.Contains(names, name) {
			continue
		}
		k := BrokerKey(name)
		if k == nil {
			out = append(out, b.listenerEntry(listenerKey(name), name))
			continue
		}
		synonyms := slices.DeleteFunc(b.synonyms(name), func(n Named) bool { return n.Source != SourceDynamicDefault })
		e := b.brokerEntry(k, synonyms)
		if !e.Sensitive {
			e.Value, e.Null = b.all[name], false // as given, as in Apache
		}
		out = append(out, e)
	}
	out = append(out, b.unknownEntries(b.unknown[0], SourceDynamicDefault, names)...)
	sortEntries(out)
	return out
}

func (b *Broker) brokerEntry(k *Key, synonyms []Named) Entry {
	e := Entry{Name: k.Name, Source: firstSource(synonyms), Synonyms: synonyms, Type: k.Type, Doc: k.Help,
		ReadOnly: k.Update == ReadOnly}
	e.Value, e.Null = b.Text(k.Name), !b.has(k.Name)
	for _, other := range alternativesOf(k.Name) {
		_, own := b.own[other]
		_, all := b.all[other]
		if other != k.Name && (own || all) {
			// A dynamic value takes its alternatives out of force: Apache shows their defaults.
			e.Value, e.Null = k.Default, k.NoDefault
		}
	}
	return e.hide(k.Sensitive())
}

// listenerEntry shows listener.name.NAME.KEY, where k is the row of KEY.
func (b *Broker) listenerEntry(k *Key, name string) Entry {
	e := Entry{Name: name, Type: k.Type, Doc: k.Help, ReadOnly: !k.ownPerListener() || k.Update == ReadOnly}
	for _, from := range b.sources() {
		if raw, ok := from.values[name]; ok {
			n := Named{Name: name, Value: k.display(raw), Source: from.source}
			if k.Sensitive() {
				n.Value, n.Null = "", true
			}
			e.Synonyms = append(e.Synonyms, n)
		}
	}
	e.Value, e.Source = e.Synonyms[0].Value, e.Synonyms[0].Source
	return e.hide(k.Sensitive())
}

// unknownEntries shows keys without a row: their values may be secrets of a
// plug-in, so they are hidden.
func (b *Broker) unknownEntries(values map[string]string, source Source, names []string) []Entry {
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if names == nil || slices.Contains(names, name) {
			e := Entry{Name: name, Source: source, ReadOnly: true, Synonyms: []Named{{Name: name, Null: true, Source: source}}}
			out = append(out, e.hide(true))
		}
	}
	return out
}

// hide marks a sensitive entry and takes its value away.
func (e Entry) hide(sensitive bool) Entry {
	if sensitive {
		e.Sensitive, e.Value, e.Null = true, "", true
	}
	return e
}

func sortEntries(entries []Entry) {
	slices.SortStableFunc(entries, func(a, b Entry) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
}
