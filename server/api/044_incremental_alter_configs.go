package api

import (
	"kaas/codec/api"
	"kaas/server/config"
)

// IncrementalAlterConfigs, key 44, v0-v1 (KIP-339). v1 flexible.
//
// A topic's setting is in force for the next request when the answer arrives.
//
// Deviation: as in AlterConfigs; and the loggers whose levels can be altered are those of this broker.
func incrementalAlterConfigs(c *call, q *api.IncrementalAlterConfigsRequest, p *api.IncrementalAlterConfigsResponse) {
	a := alteration{c: c, validateOnly: q.ValidateOnly}
	for i := range q.Resources {
		r := &q.Resources[i]
		changes := make([]config.Change, 0, len(r.Configs))
		for _, k := range r.Configs {
			changes = append(changes, config.Change{Name: cloneString(k.Name), Op: config.Op(k.ConfigOperation), Value: cloneString(k.Value.String), Null: !k.Value.Valid})
		}
		a.add(r.ResourceType, r.ResourceName, changes)
	}
	for _, r := range a.run() {
		o := api.Next(&p.Responses)
		o.ResourceType, o.ResourceName, o.ErrorCode, o.ErrorMessage = r.kind, r.name, r.code, r.message
	}
}
