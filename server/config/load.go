package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Options are the sources of a configuration.
type Options struct {
	File     string                 // path of a properties file, "" for none
	Settings []Setting              // from the command line, in order; they win over the file
	Hostname func() (string, error) // name advertised for listeners on all interfaces; nil: os.Hostname
}

// Problem is a setting that stops the start.
type Problem struct {
	Origin string // file:line or flag
	Key    string
	Value  string // "[hidden]" for passwords
	Text   string
}

func (p Problem) String() string {
	s := p.Origin
	if s != "" {
		s += ": "
	}
	if p.Key != "" {
		s += p.Key
		if p.Value != "" {
			s += "=" + p.Value
		}
		s += ": "
	}
	return s + p.Text
}

// LoadError holds every problem of a configuration, one a line in its text.
type LoadError struct{ Problems []Problem }

func (e *LoadError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// ParseAssignment reads the argument of --set.
func ParseAssignment(arg string) (Setting, error) {
	key, v, ok := strings.Cut(arg, "=")
	if key = javaTrim(key); !ok || key == "" {
		return Setting{}, fmt.Errorf("--set %s: want key=value", arg)
	}
	return Setting{key, javaTrim(v), "--set"}, nil
}

// Load reads and checks a configuration. The error is a *LoadError with all
// problems at once, or the error of reading the file.
func Load(o Options) (*Broker, error) {
	l := loader{b: &Broker{static: map[string]string{}, hostname: o.Hostname}, origins: map[string]Setting{}}
	if l.b.hostname == nil {
		l.b.hostname = os.Hostname
	}
	if o.File != "" {
		text, err := os.ReadFile(o.File)
		if err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
		settings, problems := ParseProperties(o.File, string(text))
		l.problems = problems
		l.take(settings)
	}
	l.take(o.Settings)
	l.finish()
	l.b.origins = l.origins
	if len(l.problems) > 0 {
		return nil, &LoadError{l.problems}
	}
	return l.b, nil
}

type loader struct {
	b        *Broker
	origins  map[string]Setting // the setting that counts, by key
	problems []Problem
}

// take checks settings one by one; a later one replaces an earlier one.
func (l *loader) take(settings []Setting) {
	for _, s := range settings {
		if before, ok := l.origins[s.Key]; ok {
			l.b.note("%s: %s replaces the value of %s", s.Origin, s.Key, before.Origin)
		}
		if l.accept(s) {
			l.origins[s.Key] = s
			l.b.static[s.Key] = javaTrim(s.Value)
		}
	}
}

// accept reports whether a setting may stand; if not it is among the problems.
func (l *loader) accept(s Setting) bool {
	perListener := false
	k := BrokerKey(s.Key)
	if k == nil {
		k = listenerKey(s.Key)
		perListener = k != nil
	}
	switch {
	case k == nil:
		text := "unknown key"
		if n := nearest(s.Key); n != "" {
			text += "; did you mean " + n + "?"
		}
		l.refuse(s, "", text)
		return false
	case k.Name == "broker.id" && javaTrim(s.Value) == "-1":
		return false // Apache's way of writing that it is not given
	case k.Update == DynamicOnly:
		l.refuse(s, s.Value, "this key cannot stand in the configuration; set it with kafka-configs")
		return false
	}
	v, bad := k.parse(s.Value)
	if bad != nil {
		_, why, _ := strings.Cut(bad.Message, "configuration "+k.Name+": ")
		l.refuse(s, shown(k, s.Value), why+" (allowed: "+k.AllowedText()+")")
		return false
	}
	switch {
	case k.Class == Ignored:
		l.b.note("%s: %s=%s has no effect: %s", s.Origin, s.Key, shown(k, s.Value), k.Reason)
	case k.isDefault(v):
	case k.Class == Later && !perListener:
		l.b.note("%s: %s=%s has no effect yet: %s", s.Origin, s.Key, shown(k, s.Value), k.Reason)
	case k.Class == NotBuilt:
		l.refuse(s, shown(k, s.Value), k.Reason+"; only the default ("+k.defaultText()+") is accepted")
		return false
	case perListener && !k.ownPerListener():
		l.refuse(s, shown(k, s.Value), "values for one listener alone are not built yet; set "+k.Name)
		return false
	}
	return true
}

func (l *loader) refuse(s Setting, v, text string) {
	l.problems = append(l.problems, Problem{s.Origin, s.Key, v, text})
}

// fault adds a problem that was found in the values together, with the origin
// of the first of keys that was given.
func (l *loader) fault(text string, keys ...string) {
	for _, key := range keys {
		if s, ok := l.origins[key]; ok {
			l.refuse(s, s.Value, text)
			return
		}
	}
	l.problems = append(l.problems, Problem{Key: keys[0], Text: text})
}

// finish checks the values against each other and derives the snapshot.
func (l *loader) finish() {
	b := l.b
	l.finishIdentity()
	if roles := b.get("process.roles").list; len(roles) > 0 && !slices.Contains(roles, "broker") {
		l.fault("kaas is always a broker; add broker to the roles", "process.roles")
	}
	if dirs := strings.Split(b.dataDirs(), ","); len(dirs) != 1 || javaTrim(dirs[0]) == "" {
		l.fault("exactly one data directory is needed", "log.dirs", "log.dir")
	}
	if at := b.Text("kaas.metrics.listen"); at != "" && !isHostPort(at) {
		l.fault("want host:port with a port of 0 to 65535", "kaas.metrics.listen")
	} else if at == "" && b.Bool("kaas.pprof.enable") {
		l.fault("profiles are served at kaas.metrics.listen, which is not set", "kaas.pprof.enable")
	}
	for _, c := range b.conflicts() {
		l.fault(c.Message, c.Key)
	}
	if len(l.problems) > 0 {
		// Listener checks would only repeat what is said already.
		return
	}
	listeners, err := b.parseListeners()
	if err != nil {
		l.listenerFault(err)
		return
	}
	b.Listeners = listeners
	if b.InterBroker, err = b.interBroker(listeners); err != nil {
		l.listenerFault(err)
	}
	l.checkListenerKeys()
	b.derive()
}

// listenerFault adds what is wrong with the listeners.
func (l *loader) listenerFault(err error) {
	var bad *listenerError
	if errors.As(err, &bad) {
		l.fault(bad.text, bad.key)
		return
	}
	l.fault(err.Error(), "listeners")
}

// finishIdentity makes node.id and broker.id the same, as Apache does.
func (l *loader) finishIdentity() {
	s := l.b.static
	node, hasNode := s["node.id"]
	broker, hasBroker := s["broker.id"]
	switch {
	case hasNode && hasBroker && l.b.get("node.id").num != l.b.get("broker.id").num:
		l.fault("broker.id must be the same as node.id ("+node+")", "broker.id")
	case hasNode && !hasBroker:
		s["broker.id"] = node
	case hasBroker && !hasNode:
		s["node.id"] = broker
	}
}

// shown hides the value of a sensitive key.
func shown(k *Key, v string) string {
	if k.Sensitive() {
		return "[hidden]"
	}
	return v
}

// isDefault reports whether v says the same as the default. An empty value of a
// key without a default counts as not set.
func (k *Key) isDefault(v value) bool {
	if k.NoDefault {
		return v.text == ""
	}
	d, err := k.parse(k.Default)
	if err != nil {
		panic("BUG: default of " + k.Name + ": " + err.Message)
	}
	return v.text == d.text
}

func (k *Key) defaultText() string {
	switch {
	case k.NoDefault:
		return "none"
	case k.Default == "":
		return "empty"
	}
	return k.Default
}
