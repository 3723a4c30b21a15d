package server

import (
	"kaas/server/config"
	"kaas/server/quota"
)

// quotasOf makes what knows the limits of clients.
func quotasOf(c *config.Broker) *quota.Manager {
	windows := func(prefix string) quota.Windows {
		return quota.Windows{Samples: int(c.Int(prefix + ".num")), SizeMs: 1000 * c.Int(prefix+".size.seconds")}
	}
	return quota.NewManager(quota.Config{Windows: windows("quota.window"), MutationWindows: windows("controller.quota.window")})
}
