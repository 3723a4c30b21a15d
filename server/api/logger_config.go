package api

import (
	"fmt"
	"slices"
	"strings"

	"kaas/codec/api"
	"kaas/server/config"
	"kaas/server/logging"
	"kaas/server/topics"
)

// sourceBrokerLogger is the config source of log levels (KIP-412).
const sourceBrokerLogger config.Source = 6

// loggerConfigs shows and alters log levels as the settings of a BROKER_LOGGER.
type loggerConfigs struct{ levels *logging.Levels }

// describe lists the levels of loggers, all if keys is nil.
func (l loggerConfigs) describe(keys []string) (out []config.Entry) {
	for _, name := range l.levels.Names() {
		if keys != nil && !slices.Contains(keys, name) {
			continue
		}
		level, _, _ := l.levels.Get(name)
		out = append(out, config.Entry{Name: name, Value: level, Source: sourceBrokerLogger})
	}
	return out
}

// alter changes levels, all or none.
func (l loggerConfigs) alter(changes []config.Change, validateOnly bool) *topics.Error {
	for _, c := range changes {
		knownName, knownLevel := l.levels.Valid(c.Name, c.Value)
		switch {
		case c.Op != config.OpSet && c.Op != config.OpDelete:
			return &topics.Error{Code: api.ErrInvalidRequest, Message: fmt.Sprintf("operation %d is not allowed for log levels", c.Op)}
		case c.Op == config.OpDelete && c.Name == logging.Root:
			return &topics.Error{Code: api.ErrInvalidRequest, Message: "Removing the log level of the root logger is not allowed"}
		case !knownName:
			return &topics.Error{Code: api.ErrInvalidConfig, Message: fmt.Sprintf("Logger %s does not exist!", c.Name)}
		case c.Op == config.OpSet && !knownLevel:
			return &topics.Error{Code: api.ErrInvalidConfig, Message: fmt.Sprintf("Cannot set the log level of %s to %s as it is not a supported log level. Valid log levels are %s",
				c.Name, c.Value, strings.Join(logging.LevelNames(), ", "))}
		}
	}
	for _, c := range changes {
		switch {
		case validateOnly:
		case c.Op == config.OpDelete:
			l.levels.Unset(c.Name)
		default:
			l.levels.Set(c.Name, c.Value)
		}
	}
	return nil
}
