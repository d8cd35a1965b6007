package redisconn

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"
)

// minRedis is the oldest major version of Redis that runs the scripts as intended.
const minRedis = 7

// Info has the fields of INFO.
type Info map[string]string

func parseInfo(text string) Info {
	info := Info{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// server identifies the run of a server. It changes with every restart, and when a replica
// becomes a master.
func (f Info) server() string {
	sum := sha256.Sum256([]byte(f["run_id"] + "\n" + f["master_replid"]))
	return hex.EncodeToString(sum[:8])
}

// check returns why a server must not be a node, or nil.
func (f Info) check(addr string) error {
	major, _ := strconv.Atoi(strings.SplitN(f["redis_version"], ".", 2)[0])
	switch {
	case major < minRedis:
		return SetupError(addr, "it runs Redis %s; use version %d or later", f["redis_version"], minRedis)
	case f["cluster_enabled"] == "1":
		return SetupError(addr, "it runs in cluster mode, where a failover loses votes; use independent masters")
	case f["role"] != "master":
		return SetupError(addr, "it is a replica of %s:%s; use independent masters", f["master_host"], f["master_port"])
	case f["connected_slaves"] != "" && f["connected_slaves"] != "0":
		return SetupError(addr, "it has %s replicas, and a failover to one of them would lose votes; use independent masters",
			f["connected_slaves"])
	case f["maxmemory_policy"] != "noeviction":
		return SetupError(addr, "its maxmemory-policy is %s, which may evict locks; set it to noeviction",
			f["maxmemory_policy"])
	case f["arch_bits"] == "32":
		return SetupError(addr, "it is a 32-bit build, whose scripts cannot count to 2^53; use a 64-bit one")
	case f["run_id"] == "" || f["master_replid"] == "":
		return SetupError(addr, "its INFO has no run_id or no master_replid, so a restart cannot be detected")
	}
	return nil
}

// skew returns the Skew of a server, 0 for one that does not tell its time.
func (f Info) skew(before, after time.Time) time.Duration {
	micros, err := strconv.ParseInt(f["server_time_usec"], 10, 64)
	if err != nil {
		return 0
	}
	return Skew(time.UnixMicro(micros), before, after)
}

// Skew returns the time by which the clock of a server is ahead of the local one, which was read
// before and after the server answered.
func Skew(clock, before, after time.Time) time.Duration {
	switch {
	case clock.Before(before.Add(-time.Millisecond)):
		return clock.Sub(before)
	case clock.After(after):
		return clock.Sub(after)
	}
	return 0
}

// Servers records which address of a fleet belongs to which server, so that a server
// with two addresses has one vote.
type Servers struct {
	mu    sync.Mutex
	addrs map[string]string // by the run of the server
}

// NewServers returns an empty record.
func NewServers() *Servers { return &Servers{addrs: map[string]string{}} }

// claim returns the address that owns a run of a server: the first one that claimed it.
func (s *Servers) claim(server, addr string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, owner := range s.addrs {
		if owner == addr && other != server {
			delete(s.addrs, other) // a former run, or one that has another address now
		}
	}
	if owner, taken := s.addrs[server]; taken {
		return owner
	}
	s.addrs[server] = addr
	return addr
}
