package server

import (
	"crypto/tls"
	"errors"

	"kaas/netio"
	"kaas/server/config"
	"kaas/server/tlsconfig"
)

// secureListener reads the TLS settings of a listener; nil for a plaintext one. An error names the setting and where it was given.
func (b *Broker) secureListener(l config.Listener) (*tls.Config, error) {
	if l.Protocol == "PLAINTEXT" {
		return nil, nil
	}
	text := func(key string) string { return b.cfg.ListenerText(l.Name, key) }
	source, err := tlsconfig.New(tlsconfig.Settings{
		KeystoreType: text("ssl.keystore.type"), KeystoreLocation: text("ssl.keystore.location"), KeystorePassword: text("ssl.keystore.password"),
		KeystoreKey: text("ssl.keystore.key"), KeystoreChain: text("ssl.keystore.certificate.chain"), KeyPassword: text("ssl.key.password"),
		TruststoreType: text("ssl.truststore.type"), TruststoreLocation: text("ssl.truststore.location"),
		TruststorePassword: text("ssl.truststore.password"), TruststoreCertificates: text("ssl.truststore.certificates"),
		ClientAuth: text("ssl.client.auth"), Protocol: text("ssl.protocol"), EndpointIdentification: text("ssl.endpoint.identification.algorithm"),
		EnabledProtocols: b.cfg.ListenerList(l.Name, "ssl.enabled.protocols"), CipherSuites: b.cfg.ListenerList(l.Name, "ssl.cipher.suites"),
	}, b.levels.Logger("kaas.netio"))
	var bad *tlsconfig.Error
	if errors.As(err, &bad) {
		return nil, b.cfg.ListenerFault(l.Name, "listener "+l.Name+": "+bad.Text, bad.Key)
	}
	if err != nil {
		return nil, err
	}
	return source.Config(), nil
}

// limitsOf are the limits of connections.
func limitsOf(c *config.Broker) netio.Limits {
	limits := netio.Limits{
		MaxConns: int(c.MaxConnections), MaxConnsPerIP: int(c.MaxConnectionsPerIP), ConnsPerSecond: int(c.ConnectionCreationRate),
		PerIPOverrides: make(map[string]int, len(c.ConnectionsPerHost)), Listeners: make(map[int]netio.ListenerLimits, len(c.Listeners)),
	}
	for host, n := range c.ConnectionsPerHost {
		limits.PerIPOverrides[host] = int(n)
	}
	own := func(listener, key string) int {
		if n, given := c.ListenerOwnInt(listener, key); given {
			return int(n)
		}
		return -1
	}
	for i, l := range c.Listeners {
		limits.Listeners[i] = netio.ListenerLimits{
			MaxConns: own(l.Name, "max.connections"), ConnsPerSecond: own(l.Name, "max.connection.creation.rate"),
			Protected: l.Name == c.InterBroker && len(c.Listeners) > 1,
		}
	}
	return limits
}
