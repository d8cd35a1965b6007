package redlockadapter

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// minRedis is the oldest major version whose scripts behave as ours expect.
const minRedis = 7

// facts are the fields of INFO.
type facts map[string]string

func parseInfo(info string) facts {
	f := facts{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[name] = value
		}
	}
	return f
}

// life identifies the data of a server: it changes with every restart, and when
// the server was a replica and became a master again.
func (f facts) life() string {
	sum := sha256.Sum256([]byte(f["run_id"] + "\n" + f["master_replid"]))
	return hex.EncodeToString(sum[:8])
}

// check returns why a server must not be a node.
func (f facts) check(addr string) error {
	major, _ := strconv.Atoi(strings.SplitN(f["redis_version"], ".", 2)[0])
	switch {
	case major < minRedis:
		return setupError(addr, "it runs Redis %s; use version %d or later", f["redis_version"], minRedis)
	case f["cluster_enabled"] == "1":
		return setupError(addr, "it runs in cluster mode, where a failover loses votes; use independent masters")
	case f["role"] != "master":
		return setupError(addr, "it is a replica of %s:%s; use independent masters", f["master_host"], f["master_port"])
	case f["connected_slaves"] != "" && f["connected_slaves"] != "0":
		return setupError(addr, "it has %s replicas, and a failover to one of them would lose votes; use independent masters", f["connected_slaves"])
	case f["maxmemory_policy"] != "noeviction":
		return setupError(addr, "its maxmemory-policy is %s, which may evict locks; set it to noeviction", f["maxmemory_policy"])
	case f["arch_bits"] == "32":
		return setupError(addr, "it is a 32-bit build, whose scripts cannot count to 2^53; use a 64-bit one")
	case f["run_id"] == "" || f["master_replid"] == "":
		return setupError(addr, "its INFO has no run_id or no master_replid, so a restart cannot be detected")
	}
	return nil
}
