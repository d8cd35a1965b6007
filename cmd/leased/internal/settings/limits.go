package settings

import (
	"strconv"
	"time"

	"github.com/leased-project/leased/internal/server/limits"
	"github.com/leased-project/leased/lease"
)

// limitKeys has the limits of requests and users.
var limitKeys = func() []key {
	var all []key
	for _, f := range limits.Fields {
		all = append(all, key{name: f.Name, fallback: strconv.Itoa(f.Default), usage: f.Usage, number: true,
			set: func(s *Settings, v string) (rule string) { *f.Of(&s.Limits), rule = number(v, f.Least, f.Most); return }})
	}
	return append(all,
		duration(limits.TTLMinName, lease.MinTTL, lease.MinTTL, "shortest TTL of a session or lease", func(s *Settings) *time.Duration { return &s.Limits.TTLMin }),
		duration(limits.TTLMaxName, lease.MaxTTL, lease.MinTTL, "longest TTL of a session or lease", func(s *Settings) *time.Duration { return &s.Limits.TTLMax }),
		duration(limits.SendTimeoutName, limits.DefaultSendTimeout, time.Second, "time for which a client may leave a message of a stream unread",
			func(s *Settings) *time.Duration { return &s.Limits.SendTimeout }),
		duration(limits.BodyTimeoutName, limits.DefaultBodyTimeout, time.Second, "time until the body of an HTTP call must have arrived",
			func(s *Settings) *time.Duration { return &s.Limits.BodyTimeout }),
		duration(limits.IdleTimeoutName, limits.DefaultIdleTimeout, time.Second, "time after which a connection without calls is closed",
			func(s *Settings) *time.Duration { return &s.Limits.IdleTimeout }))
}()

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
			return s.broken(limits.TTLMaxName, "must be at least the ttl ("+ttl.String()+") of the policy for "+strconv.Quote(p.Prefix))
		case ttl < s.Limits.TTLMin:
			return s.broken(limits.TTLMinName, "must be at most the ttl ("+ttl.String()+") of the policy for "+strconv.Quote(p.Prefix))
		}
	}
	return nil
}
