package settings

import (
	"cmp"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/leased-project/leased/internal/secret"
	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/internal/server/tracing"
	"github.com/leased-project/leased/lease"
)

// validate fills in defaults that depend on other settings, and reports the first
// broken rule.
func (s *Settings) validate() error {
	if s.ID == "" {
		s.ID, _ = os.Hostname()
		s.give("id", s.ID, "host name")
	}
	for _, k := range s.keys() { // before any of them is printed
		if secret.In(s.texts[k.name]) {
			return s.broken(k.name, "must not be a secret: write the secret to a file and give its path in secret-file")
		}
	}
	switch {
	case s.ID == "":
		return s.broken("id", "is required: this host has no name")
	case s.Data == "":
		return s.broken("data", "is required: the data folder of this member, such as /var/lib/leased")
	case (s.TLSCert == "") != (s.TLSKey == ""):
		return s.broken("tls-cert", "must be given together with tls-key ("+cmp.Or(s.TLSKey, "empty")+")")
	case s.TLSCert != "" && s.TLSCA == "":
		return s.broken("tls-ca", "is required with tls-cert ("+s.TLSCert+"): members verify each other's certificates")
	case s.TLSClients && s.TLSCert == "":
		return s.broken("tls-clients", "needs tls-cert and tls-ca")
	case s.Users != "" && s.SecretFile == "" && len(s.Join) > 0:
		return s.broken("secret-file", "is required with users ("+s.Users+") and join: this member must authenticate to "+
			"the others; create a secret with `leased user add --member`")
	case s.BootstrapExpect == 0 && len(s.Join) == 0:
		return s.broken("bootstrap-expect", "must be 1 for a single member, or the number of members listed in join; "+
			"to join an existing cluster, give the API address of a member in join")
	case s.BootstrapExpect == 2:
		return s.broken("bootstrap-expect", "must not be 2: two members tolerate no more failures than one; use 1, 3 or 5")
	case s.BootstrapExpect > 1 && len(s.Join) != s.BootstrapExpect:
		return s.broken("bootstrap-expect", "must be the number of addresses in join, which is "+strconv.Itoa(len(s.Join))+
			"; list all members there, including this one")
	}
	if err := s.validateAddresses(); err != nil {
		return err
	}
	if err := s.validateDiagnostics(); err != nil {
		return err
	}
	if err := s.validateLimits(); err != nil {
		return err
	}
	return s.validateRedis()
}

func (s *Settings) validateAddresses() error {
	for key, address := range map[string]string{"listen": s.Listen, "raft-listen": s.RaftListen,
		"advertise": s.Advertise, "raft-advertise": s.RaftAdvertise} {
		if address == "" && (key == "advertise" || key == "raft-advertise") {
			continue
		}
		host, rule := hostOf(address)
		if rule != "" {
			return s.broken(key, rule)
		}
		if s.TLSCert == "" && !loopback(host) {
			return s.broken(key, "must be a loopback address without TLS: everyone who can connect could acquire and break "+
				"leases; give tls-cert, tls-key and tls-ca")
		}
	}
	if s.ProbeListen != "" { // it may have any address: it shows only the state and the metrics of this member
		if _, rule := hostOf(s.ProbeListen); rule != "" {
			return s.broken("probe-listen", rule)
		}
	}
	for key, addresses := range map[string][]string{"join": s.Join, "redis": s.Redis} {
		for _, address := range addresses {
			if _, rule := hostOf(address); rule != "" {
				if key == "redis" {
					rule = strings.Replace(rule, "127.0.0.1:7420", "127.0.0.1:6379", 1)
				}
				return s.broken(key, rule+"; this address is not: "+address)
			}
		}
	}
	return nil
}

// validateDiagnostics checks the settings of profiles and traces.
func (s *Settings) validateDiagnostics() error {
	if s.PprofListen != "" {
		host, rule := hostOf(s.PprofListen)
		if rule == "" && !loopback(host) {
			rule = "must be a loopback address: profiles contain memory of the member, and the port has no authentication; " +
				"listen on 127.0.0.1 and use a tunnel"
		}
		if rule != "" {
			return s.broken("pprof-listen", rule)
		}
	}
	if s.TraceEndpoint == "" || (tracing.Config{Endpoint: s.TraceEndpoint, Sample: s.TraceSample}).Validate() == nil {
		return nil
	}
	if u, err := url.Parse(s.TraceEndpoint); err == nil && u.User != nil {
		s.texts["trace-endpoint"] = u.Redacted()
	}
	return s.broken("trace-endpoint", "must be the URL of an OTLP/HTTP collector, such as http://127.0.0.1:4318, "+
		"without a password: give it in OTEL_EXPORTER_OTLP_HEADERS")
}

// hostOf returns the host of an address, or the rule that the address breaks.
func hostOf(address string) (host, rule string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", "must be HOST:PORT, such as 127.0.0.1:7420"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", "must have a port from 0 to 65535"
	}
	return host, ""
}

// loopback reports whether every address of the host is a loopback address.
func loopback(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	ips, err := net.LookupIP(host)
	if err != nil || len(ips) == 0 || host == "" {
		return false
	}
	return !slices.ContainsFunc(ips, func(ip net.IP) bool { return !ip.IsLoopback() })
}

// validateLimits checks the relations between limits, and that clients can use the
// TTLs of the policies.
func (s *Settings) validateLimits() error {
	switch {
	case s.Limits.TTLMax > lease.MaxTTL:
		return s.broken(limits.TTLMaxName, "must be at most "+lease.MaxTTL.String())
	case s.Limits.TTLMin > s.Limits.TTLMax:
		return s.broken(limits.TTLMinName, "must be at most "+limits.TTLMaxName+" ("+s.Limits.TTLMax.String()+")")
	}
	for _, p := range s.Policies {
		switch ttl := p.Filled().TTL; {
		case ttl > s.Limits.TTLMax:
			return s.broken(limits.TTLMaxName,
				"must be at least the ttl ("+ttl.String()+") of the policy for "+strconv.Quote(p.Prefix))
		case ttl < s.Limits.TTLMin:
			return s.broken(limits.TTLMinName,
				"must be at most the ttl ("+ttl.String()+") of the policy for "+strconv.Quote(p.Prefix))
		}
	}
	return nil
}
