package catalog

import (
	"fmt"

	"kaas/engine/state"
)

// ReadTopics lists the topics of a store, in order of names, without counting a start: for tools. LeaderEpoch is not set.
func ReadTopics(store *state.Store) (list []*Topic, err error) {
	err = store.Scan([]byte{kindTopic}, func(key, value []byte) error {
		t, err := decodeTopic(string(key[1:]), value)
		if err != nil {
			return fmt.Errorf("catalog: key %q: %w", key, err)
		}
		list = append(list, t)
		return nil
	})
	return list, err
}
