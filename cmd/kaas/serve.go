package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kaas/cmd/kaas/cli"
	"kaas/server"
	"kaas/server/config"
)

// shortForms are flags for everyday settings: each is a short form of a key.
var shortForms = []struct{ flag, key, help string }{
	{"data-dir", "log.dirs", "data directory (log.dirs); default ./data"},
	{"listen", "listeners", "host:port or listeners to open (listeners); port 0 picks a free one; default :9092"},
	{"advertise", "advertised.listeners", "host:port that clients are told (advertised.listeners)"},
	{"durability", "kaas.durability", "group-commit: acks=all waits for the disk; page-cache: it does not, as Apache's default (kaas.durability)"},
	{"metrics", "kaas.metrics.listen", "host:port for /metrics, /healthz and /readyz over HTTP; port 0 picks a free one; default nowhere (kaas.metrics.listen)"},
	{"storage", "kaas.storage", "disk or memory (kaas.storage)"},
}

// serveCommand runs a broker until a signal ends it.
func serveCommand(began time.Time) *cobra.Command {
	var file string
	var sets []string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker (the default)",
		Long: `Run the broker. When its ports are open it prints one line of JSON on standard output that says where;
everything else goes to standard error. SIGTERM and SIGINT stop it: answers that are due are sent, everything accepted is
synced, and it exits with 0.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadConfig(c, file, sets)
			if err != nil {
				return cli.Usage(err)
			}
			return serve(cfg, began)
		},
	}
	c.Flags().StringVar(&file, "config", "", "settings file, Apache's server.properties")
	c.Flags().StringArrayVar(&sets, "set", nil, "one setting as key=value; may be given again and wins over the file")
	for _, s := range shortForms {
		c.Flags().String(s.flag, "", s.help)
	}
	return c
}

// loadConfig reads the file, then the settings of the command line.
func loadConfig(c *cobra.Command, file string, sets []string) (*config.Broker, error) {
	opts := config.Options{File: file}
	for _, arg := range sets {
		s, err := config.ParseAssignment(arg)
		if err != nil {
			return nil, err
		}
		opts.Settings = append(opts.Settings, s)
	}
	for _, s := range shortForms {
		f := c.Flags().Lookup(s.flag)
		if !f.Changed {
			continue
		}
		v := f.Value.String()
		if s.key == "listeners" || s.key == "advertised.listeners" {
			v = config.ListenersValue(v)
		}
		opts.Settings = append(opts.Settings, config.Setting{Key: s.key, Value: v, Origin: "--" + s.flag})
	}
	return config.Load(opts)
}

// serve starts the broker, tells where it is, and waits for the signal to stop.
func serve(cfg *config.Broker, began time.Time) error {
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	b, err := server.Start(cfg, began, os.Stderr)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(b.Ready()); err != nil {
		return fmt.Errorf("cannot say that the broker is ready: %w", err)
	}
	<-stop
	return b.Stop()
}
