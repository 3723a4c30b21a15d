package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Op is what IncrementalAlterConfigs does to a key, numbered as on the wire.
type Op int8

// The operations of KIP-339.
const (
	OpSet      Op = 0
	OpDelete   Op = 1
	OpAppend   Op = 2 // LIST keys only
	OpSubtract Op = 3 // LIST keys only
)

// Change is one entry of CreateTopics, AlterConfigs or IncrementalAlterConfigs.
type Change struct {
	Name  string
	Op    Op // OpSet in the first two
	Value string
	Null  bool // the value is null
}

// checkChanges refuses what is wrong with a request whatever the keys mean.
func checkChanges(changes []Change) *Error {
	var nulls, twice []string
	seen := make(map[string]bool, len(changes))
	for _, c := range changes {
		if c.Null && c.Op != OpDelete {
			nulls = append(nulls, c.Name)
		}
		if seen[c.Name] {
			twice = append(twice, c.Name)
		}
		seen[c.Name] = true
	}
	if len(twice) > 0 {
		return &Error{CodeInvalidRequest, twice[0], "Error due to duplicate config keys : " + strings.Join(twice, ",")}
	}
	if len(nulls) > 0 {
		return &Error{CodeInvalidRequest, nulls[0], "Null value not supported for : " + strings.Join(nulls, ",")}
	}
	for _, c := range changes {
		if c.Op < OpSet || c.Op > OpSubtract {
			return &Error{CodeInvalidRequest, c.Name, fmt.Sprintf("Unknown operation type %d for key %s", c.Op, c.Name)}
		}
	}
	return nil
}

// apply returns a copy of current with changes made; find gives the row of a key.
func apply(current map[string]string, changes []Change, find func(string) *Key) (map[string]string, *Error) {
	next := maps.Clone(current)
	if next == nil {
		next = map[string]string{}
	}
	for _, c := range changes {
		switch c.Op {
		case OpSet:
			next[c.Name] = c.Value
		case OpDelete:
			delete(next, c.Name)
		default:
			k := find(c.Name)
			if k == nil || k.Type != TypeList {
				return nil, &Error{CodeInvalidConfig, c.Name, fmt.Sprintf("Can't %s to key %s because its type is not LIST.",
					map[Op]string{OpAppend: "APPEND", OpSubtract: "SUBTRACT"}[c.Op], c.Name)}
			}
			before, given := next[c.Name]
			if !given {
				before = k.Default
			}
			next[c.Name] = editList(before, c)
		}
	}
	return next, nil
}

// editList adds the members of the change that are missing, or removes them.
func editList(before string, c Change) string {
	var list []string
	if before != "" {
		list = strings.Split(before, ",")
	}
	for _, m := range strings.Split(c.Value, ",") {
		at := slices.Index(list, m)
		switch {
		case c.Op == OpAppend && at < 0:
			list = append(list, m)
		case c.Op == OpSubtract && at >= 0:
			list = slices.Delete(list, at, at+1)
		}
	}
	return strings.Join(list, ",")
}

// AlterTopic makes the changes of IncrementalAlterConfigs to the settings of a
// topic. It returns the new settings; current stays as it is.
func (b *Broker) AlterTopic(current map[string]string, changes []Change) (map[string]string, *Error) {
	if err := checkChanges(changes); err != nil {
		return nil, err
	}
	next, err := apply(current, changes, TopicKey)
	if err == nil {
		err = b.ValidateTopic(next)
	}
	if err != nil {
		return nil, err
	}
	return next, nil
}

// ReplaceTopic makes the settings of a topic from those in AlterConfigs: what it
// does not name is reset.
func (b *Broker) ReplaceTopic(changes []Change) (map[string]string, *Error) {
	return b.AlterTopic(nil, changes)
}

// AlterBroker makes the changes of IncrementalAlterConfigs to the dynamic
// settings of this broker (own) or of all brokers. It returns the new settings
// for WithDynamic; current stays as it is. What Apache refuses, and what cannot
// take effect, is refused with CodeInvalidRequest.
func (b *Broker) AlterBroker(own bool, current map[string]string, changes []Change) (map[string]string, *Error) {
	if err := checkChanges(changes); err != nil {
		return nil, err
	}
	next, err := apply(current, changes, dynamicKey)
	if err != nil {
		return nil, err
	}
	if err := b.validateDynamic(own, next); err != nil {
		return nil, &Error{CodeInvalidRequest, err.Key, err.Message}
	}
	return next, nil
}

// ReplaceBroker makes the dynamic settings from those in AlterConfigs: what it
// does not name is reset.
func (b *Broker) ReplaceBroker(own bool, changes []Change) (map[string]string, *Error) {
	return b.AlterBroker(own, nil, changes)
}

// validateDynamic checks the whole of the dynamic settings of one kind.
func (b *Broker) validateDynamic(own bool, settings map[string]string) *Error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		k := dynamicKey(name)
		if k == nil {
			if k := listenerKey(name); k != nil && k.Class != Ignored {
				return &Error{CodeInvalidRequest, name, "values for one listener alone are not built yet: " + name}
			}
			continue // Apache keeps unknown keys, for plug-ins
		}
		clusterWide := own || k.Update != PerBroker
		if err := k.checkDynamic(settings[name]); err != nil && (clusterWide || k.Class != Effective) {
			return err
		}
		if !clusterWide {
			return &Error{CodeInvalidRequest, name, "Cannot update these configs at default cluster level, broker id must be specified: Set(" + name + ")"}
		}
	}
	try := *b
	var bad []*Error
	if own {
		try.own, _ = usable(settings, &bad)
	} else {
		try.all, _ = usable(settings, &bad)
	}
	if conflicts := try.conflicts(); len(conflicts) > 0 {
		return conflicts[0]
	}
	return nil
}

// checkDynamic refuses a value that cannot be in force while the broker runs.
func (k *Key) checkDynamic(raw string) *Error {
	if k.Update == ReadOnly {
		return &Error{CodeInvalidRequest, k.Name, "Cannot update these configs dynamically: Set(" + k.Name + ")"}
	}
	v, err := k.parse(raw)
	switch {
	case err != nil:
		return err
	case k.Class == NotBuilt && !k.isDefault(v):
		return &Error{CodeInvalidRequest, k.Name, fmt.Sprintf("Invalid value %s for configuration %s: %s", shown(k, v.text), k.Name, k.Reason)}
	case k.Class == Effective && k.Update == PerBroker:
		// The listeners and their TLS: nobody opens or closes one in a running broker. Key stores that change on disk are read anew.
		return &Error{CodeInvalidRequest, k.Name, k.Name + " cannot be changed while kaas runs"}
	}
	return nil
}
